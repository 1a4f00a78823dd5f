// Builds the addon in release mode and copies it next to index.js, where native.js finds it. Needs only
// Node.js and Rust.

import { spawnSync } from 'node:child_process'
import { copyFileSync, renameSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const args = ['build', '--release', '--locked', '--package', 'quorlock-node']
const cargo = spawnSync('cargo', [...args, '--message-format', 'json-render-diagnostics'], {
  cwd: here('..'),
  encoding: 'utf8',
  maxBuffer: Infinity,
  stdio: ['ignore', 'pipe', 'inherit'],
})
if (cargo.error) throw new Error('quorlock is built with Rust: install it first', { cause: cargo.error })
if (cargo.status !== 0) process.exit(cargo.status ?? 1)

const library = cargo.stdout
  .split('\n')
  .filter((line) => line.startsWith('{'))
  .map((line) => JSON.parse(line))
  .find((message) => message.reason === 'compiler-artifact' && message.target.name === 'quorlock_node')
  .filenames.find((name) => /\.(so|dylib|dll)$/.test(name))
// Renaming replaces the addon atomically, and a process that has loaded the old one keeps it.
copyFileSync(library, here('quorlock.node.new'))
renameSync(here('quorlock.node.new'), here('quorlock.node'))
