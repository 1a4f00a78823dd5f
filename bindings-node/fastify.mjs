// Exports what fastify.js exports, so that `import` and `require` get the same plugin.

import exported from './fastify.js'

export const { quorlock } = exported
