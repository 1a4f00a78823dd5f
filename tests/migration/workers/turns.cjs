// The work that a Node.js service does with the lock, before and after its migration.
// turns.py does the same.

const { appendFileSync, readFileSync, writeFileSync } = require('node:fs')
const { setTimeout: sleep } = require('node:timers/promises')

const settings = JSON.parse(process.argv[2])

const now = () => Number(process.hrtime.bigint())

async function turn(fence) {
  const begun = now()
  const count = Number(readFileSync(settings.counter, 'utf8'))
  await sleep(1)
  writeFileSync(settings.counter, String(count + 1))
  const entry = { name: settings.name, begun, ended: now(), fence }
  appendFileSync(settings.history, JSON.stringify(entry) + '\n')
}

// Does the work repeatedly until stdin ends. `withLock` acquires the lock, calls its argument once
// with the fence, and releases the lock.
async function takeTurns(withLock) {
  let over = false
  process.stdin.resume().once('end', () => (over = true))
  while (!over) {
    await withLock(turn)
    await sleep(2 + Math.random() * 8)
  }
}

module.exports = { settings, takeTurns }
