// Exports what opentelemetry.js exports, so that `import` and `require` get the same classes.

import exported from './opentelemetry.js'

export const { instrument } = exported
