// Finds and loads the addon. In a checkout, `make build` puts it next to this file. An installed package gets it
// from one of its optional dependencies, each of which contains the addon for one platform. Other files load this one
// as `#native` (package.json), because bundlers must load bundled.js instead.

'use strict'

// Each name is written out, so that tools that trace the files of a program find the addon.
const addons = {
  'darwin-arm64': [() => require('@quorlock/darwin-arm64')],
  'darwin-x64': [() => require('@quorlock/darwin-x64')],
  'linux-arm': [() => require('@quorlock/linux-arm-gnueabihf'), () => require('@quorlock/linux-arm-musleabihf')],
  'linux-arm64': [() => require('@quorlock/linux-arm64-gnu'), () => require('@quorlock/linux-arm64-musl')],
  'linux-x64': [() => require('@quorlock/linux-x64-gnu'), () => require('@quorlock/linux-x64-musl')],
  'win32-arm64': [() => require('@quorlock/win32-arm64-msvc')],
  'win32-x64': [() => require('@quorlock/win32-x64-msvc')],
}

const page = 'https://github.com/quorlock/quorlock/blob/main/docs/packages.md'

/** Says for which platforms there are addons, and why there is none here. */
function explain(platform, error) {
  const there = `quorlock has addons for ${Object.keys(addons).join(', ')}`
  if (error) return `${there}; the addon for ${platform} cannot be loaded: ${error.message}. See ${page}`
  if (!addons[platform]) return `${there}, and not for ${platform}: build it from its sources there, see ${page}`
  return (
    `${there}; the package with the addon for ${platform}, @quorlock/${platform}…, is not installed. Package managers ` +
    'leave it out when told to omit optional dependencies (--omit=optional, --no-optional), when node_modules was made ' +
    'on another platform, and sometimes when the lock file was: delete both, and install again. ' +
    `See ${page}`
  )
}

function load() {
  const platform = `${process.platform}-${process.arch}`
  const errors = []
  // Package managers that ignore the `libc` field install both Linux packages, of which only one can be loaded.
  for (const requireAddon of [() => require('./quorlock.node'), ...(addons[platform] ?? [])]) {
    try {
      return requireAddon()
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') errors.push(error)
    }
  }
  throw new Error(explain(platform, errors[0]), { cause: errors[0] })
}

module.exports = load()
