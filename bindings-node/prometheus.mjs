// Exports what prometheus.js exports, so that `import` and `require` get the same classes.

import exported from './prometheus.js'

export const { register } = exported
