// Real servers, by tests/servers.py in its command mode.

import { execFile, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import assert from 'node:assert/strict'
import { Client } from 'quorlock'

const program = fileURLToPath(new URL('../servers.py', import.meta.url))

export class Servers {
  #process
  #answers

  /** Starts servers that live until the end of the test; their logs are kept if it fails. */
  static start(test, count, options = {}) {
    return Servers.startWith(test, { start: count, ...options })
  }

  /** Starts those that a command of tests/servers.py starts: of sentinels, or a cluster. */
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

  /** Sends one command and returns its answer. Commands must be awaited one after the other. */
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

  /** Whether no node has the key. */
  async isFree(key) {
    for (const index of this.all.keys()) if (await this.command(index, 'EXISTS', key)) return false
    return true
  }

  /** Whether no node has any key but fences. */
  async isEmpty() {
    for (const index of this.all.keys()) {
      const keys = await this.command(index, 'KEYS', '*')
      if (keys.some((key) => !key.endsWith(':fence'))) return false
    }
    return true
  }

  async #stop(test) {
    if (test.passed === false) await this.ask({ keep_logs: true })
    this.#process.stdin.end()
    if (this.#process.exitCode === null) await new Promise((ended) => this.#process.once('exit', ended))
  }
}

/** Returns when the condition is true; fails the test if it does not come true. */
export async function until(condition) {
  const deadline = performance.now() + 60_000
  while (!(await condition())) {
    assert(performance.now() < deadline, 'the condition did not come true')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** Keeps the event loop busy. */
export function stall(ms) {
  const end = performance.now() + ms
  while (performance.now() < end);
}

/** Servers, and a client of them, for one test. */
export async function open(t, count = 3, options = {}) {
  const servers = await Servers.start(t, count)
  const client = new Client(servers.urls, options)
  t.after(() => client.close())
  return { servers, client }
}

/** Puts another holder's token in place of the key, on all nodes. */
export async function steal(servers, key) {
  for (const index of servers.all.keys()) await servers.command(index, 'SET', key, 'thief')
}

/** Runs a module in a process of its own; returns what it prints. It must not print errors or warnings. */
export async function runModule(program, servers, ...flags) {
  const args = [...flags, '--input-type=module', '--eval', program, '--', ...servers.urls]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 })
  assert.equal(stderr, '')
  return stdout
}
