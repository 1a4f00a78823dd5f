// Exports what testing.js exports, so that `import` and `require` get the same classes.

import exported from './testing.js'

export const { Nodes } = exported
