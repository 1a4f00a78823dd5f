// Finds and loads the addon. In a checkout, `make build` puts it next to this file. An installed package gets it
// from one of its optional dependencies, each of which contains the addon for one platform.

import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const local = new URL('quorlock.node', import.meta.url)

const advice =
  'Packages are published for Linux (x64 and arm64, glibc 2.17 or musl), macOS (x64 and arm64) and Windows (x64); elsewhere, ' +
  'build quorlock from its sources: https://github.com/quorlock/quorlock/blob/main/docs/packages.md'

const missing = (name) =>
  `the package ${name}, which has quorlock's addon for this platform, is not installed. ` +
  'Package managers leave it out when told to omit optional dependencies (--omit=optional, --no-optional), ' +
  'when node_modules was made on another platform, and sometimes when the lock file was: delete both, and install again. '

function load() {
  if (existsSync(local)) return require('./quorlock.node')
  const platform = `${process.platform}-${process.arch}`
  // Package managers that ignore the `libc` field install both Linux packages, of which only one can be loaded.
  const variants = { linux: ['-gnu', '-musl'], win32: ['-msvc'] }[process.platform] ?? ['']
  const names = variants.map((variant) => `@quorlock/${platform}${variant}`)
  const errors = []
  for (const name of names) {
    try {
      return require(name)
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') errors.push(error)
    }
  }
  const [error] = errors
  const why = error ? `its addon cannot be loaded: ${error.message}. ` : missing(names.join(' or '))
  throw new Error(`quorlock: ${why}${advice}`, { cause: error })
}

export default load()
