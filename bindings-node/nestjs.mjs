// Exports what nestjs.js exports, so that `import` and `require` get the same classes.

import exported from './nestjs.js'

export const { HeldLease, Locked, QuorlockModule } = exported
