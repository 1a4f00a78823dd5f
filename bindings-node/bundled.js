// Takes the place of native.js in a bundle, which cannot contain the addon. Bundlers choose this file by the condition
// `module`, which only they set: see `imports` in package.json.

'use strict'

throw new Error(
  'quorlock cannot be bundled, because it has a native addon. Mark it as external, and install it where the bundle runs. ' +
    "esbuild: --external:quorlock; webpack: externals: { quorlock: 'node-commonjs quorlock' }; Rollup: external: ['quorlock']; " +
    "Vite: ssr.external: ['quorlock']; Next.js: serverExternalPackages: ['quorlock']. " +
    'See https://github.com/quorlock/quorlock/blob/main/docs/packages.md#bundlers',
)
