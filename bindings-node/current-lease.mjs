// Exports what current-lease.js exports, so that `import` and `require` track the same leases.

import exported from './current-lease.js'

export const { currentLease } = exported
