import type { Lease } from 'quorlock'

/**
 * Returns the lease of the innermost function given to `using` or `elect` around the caller, or of the method with `@Locked`.
 * Whatever such a function starts gets the same lease, until the function ends. The lease may be lost: see `Lease.signal`.
 *
 * Knows only functions that were called after this module was imported, so import it where the program begins. Before Node.js
 * 24, the import makes the promises of the whole process slower. `await using lease = ...` is no such function.
 *
 * Throws an `Error` if there is no such function.
 */
export function currentLease(): Lease
