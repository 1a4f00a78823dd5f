// Finds and loads the addon. In a checkout, `make build` puts it next to this file. An installed package gets it
// from one of its optional dependencies, each of which contains the addon for one platform.

'use strict'

const { existsSync } = require('node:fs')
const { join } = require('node:path')

const advice =
  'Packages are published for Linux (x64 and arm64, glibc 2.17 or musl), macOS (x64 and arm64) and Windows (x64); elsewhere, ' +
  'build quorlock from its sources: https://github.com/quorlock/quorlock/blob/main/docs/packages.md'

const missing = (name) =>
  `the package ${name}, which has quorlock's addon for this platform, is not installed. ` +
  'Package managers leave it out when told to omit optional dependencies (--omit=optional, --no-optional), ' +
  'when node_modules was made on another platform, and sometimes when the lock file was: delete both, and install again. '

// Each name is written out, so that tools that trace the files of a program find the addon.
const addons = {
  'darwin-arm64': [() => require('@quorlock/darwin-arm64')],
  'darwin-x64': [() => require('@quorlock/darwin-x64')],
  'linux-arm64': [() => require('@quorlock/linux-arm64-gnu'), () => require('@quorlock/linux-arm64-musl')],
  'linux-x64': [() => require('@quorlock/linux-x64-gnu'), () => require('@quorlock/linux-x64-musl')],
  'win32-x64': [() => require('@quorlock/win32-x64-msvc')],
}

function load() {
  if (existsSync(join(__dirname, 'quorlock.node'))) return require('./quorlock.node')
  const platform = `${process.platform}-${process.arch}`
  const errors = []
  // Package managers that ignore the `libc` field install both Linux packages, of which only one can be loaded.
  for (const requireAddon of addons[platform] ?? []) {
    try {
      return requireAddon()
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') errors.push(error)
    }
  }
  const [error] = errors
  const why = error ? `its addon cannot be loaded: ${error.message}. ` : missing(`@quorlock/${platform}`)
  throw new Error(`quorlock: ${why}${advice}`, { cause: error })
}

module.exports = load()
