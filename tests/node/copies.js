// Further copies of the package in one process, as several versions or bundles in one program are.

import { createRequire } from 'node:module'
import { dirname } from 'node:path'

const require = createRequire(import.meta.url)
const root = dirname(require.resolve('quorlock'))

/** Loads another copy of the package. It shares only the addon with those that are loaded already. */
export function loadCopy() {
  const isModule = (path) => dirname(path) === root && path.endsWith('.js')
  const loaded = Object.entries(require.cache).filter(([path]) => isModule(path))
  for (const [path] of loaded) delete require.cache[path]
  const copy = require('quorlock')
  Object.assign(require.cache, Object.fromEntries(loaded))
  return copy
}
