// Exports what index.js exports, so that `import` and `require` get the same classes.

import exported from './index.js'

export const {
  Client,
  ClosedError,
  ConfigError,
  Diagnosis,
  Lease,
  LeaseLostError,
  LockTimeoutError,
  QuorlockError,
  QuorumError,
  Semaphore,
} = exported
