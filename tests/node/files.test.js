// A process that cannot open files: the first use fails with an error, and works once it can.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { test } from 'node:test'

const { resolve } = createRequire(import.meta.url)

const PROGRAM = `
  const fs = require('node:fs')
  const { Client, QuorumError } = require(${JSON.stringify(resolve('../../bindings-node'))})
  const opened = []
  const client = new Client(['memory://files'])
  const use = async () => { await (await client.lock('r')).release() }
  const main = async () => {
    for (;;) {
      try {
        opened.push(fs.openSync('/dev/null'))
      } catch (error) {
        if (error.code !== 'EMFILE') throw error
        break
      }
    }
    for (let spare = 0; spare < 5; spare++) {
      let failure
      await use().catch((error) => { failure = error })
      if (!(failure instanceof QuorumError)) throw failure ?? new Error('it is locked with ' + spare)
      if (!failure.message.includes('Too many open files')) throw failure
      fs.closeSync(opened.pop())
    }
    opened.forEach((file) => fs.closeSync(file))
    await use()
    console.log('locked')
  }
  main()
`

test('the first use without files fails and works later', { skip: process.platform === 'win32' }, () => {
  // Node.js raises the limit as far as it may.
  const command = ['-c', 'ulimit -n 200; exec "$@"', 'sh', process.execPath, '-e', PROGRAM]
  assert.equal(execFileSync('sh', command, { encoding: 'utf8', timeout: 60_000 }), 'locked\n')
})
