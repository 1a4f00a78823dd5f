// Starts and controls real servers by running tests/servers.py as a subprocess.

import { execFile, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import assert from 'node:assert/strict'
import { Client } from 'quorlock'

// The settings of a fleet, which operators may have set on the machine that runs the tests.
for (const name of ['NODES', 'RESTART_GUARD', 'KEY_PREFIX', 'DRIFT_FACTOR']) delete process.env[`QUORLOCK_${name}`]

const program = fileURLToPath(new URL('../servers.py', import.meta.url))

export class Servers {
  #process
  #answers

  /** Starts servers that run until the end of the test. Their logs are kept if the test fails. */
  static start(test, count, options = {}) {
    return Servers.startWith(test, { start: count, ...options })
  }

  /** Starts servers with a command of tests/servers.py, such as { start_cluster: true }. */
  static async startWith(test, command) {
    const servers = new Servers()
    servers.#process = spawn(process.env.PYTHON ?? 'python3', [program], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    servers.#answers = createInterface({ input: servers.#process.stdout })[Symbol.asyncIterator]()
    test.after(() => servers.#stop(test))
    servers.all = await servers.ask(command)
    servers.urls = servers.all.map((server) => server.url)
    return servers
  }

  /** Sends one command to tests/servers.py and returns its answer. Await it before the next command. */
  async ask(command) {
    this.#process.stdin.write(JSON.stringify(command) + '\n')
    const { value, done } = await this.#answers.next()
    assert(!done, 'the servers ended')
    const answer = JSON.parse(value)
    if (answer.error !== undefined) throw new Error(answer.error)
    return answer.ok
  }

  command(server, ...command) {
    return this.ask({ command: [server, ...command] })
  }

  /** Returns whether no node has the key. */
  async isFree(key) {
    for (const index of this.all.keys()) if (await this.command(index, 'EXISTS', key)) return false
    return true
  }

  /** Returns whether no node has any key other than fence counters and the indexes of semaphores, which expire later. */
  async isEmpty() {
    for (const index of this.all.keys()) {
      const keys = await this.command(index, 'KEYS', '*')
      if (keys.some((key) => !/:(fence|permits)$/.test(key))) return false
    }
    return true
  }

  async #stop(test) {
    if (test.passed === false) await this.ask({ keep_logs: true })
    this.#process.stdin.end()
    if (this.#process.exitCode === null) await new Promise((ended) => this.#process.once('exit', ended))
  }
}

/** Waits until the condition is true. Fails the test if it is not true within a minute. */
export async function until(condition) {
  const deadline = performance.now() + 60_000
  while (!(await condition())) {
    assert(performance.now() < deadline, 'the condition did not come true')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** Blocks the event loop for `ms` milliseconds. */
export function stall(ms) {
  const end = performance.now() + ms
  while (performance.now() < end);
}

/** Starts servers and opens a client of them, for one test. */
export async function open(t, count = 3, options = {}) {
  const servers = await Servers.start(t, count)
  const client = new Client(servers.urls, options)
  t.after(() => client.close())
  return { servers, client }
}

/** Replaces the value of the key with another token, on all nodes. */
export async function steal(servers, key) {
  for (const index of servers.all.keys()) await servers.command(index, 'SET', key, 'thief')
}

/** Runs a module in a process of its own and returns its stdout. Fails if it writes to stderr. */
export async function runModule(program, servers, ...flags) {
  const args = [...flags, '--input-type=module', '--eval', program, '--', ...servers.urls]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 })
  assert.equal(stderr, '')
  return stdout
}
