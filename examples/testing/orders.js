// The code to test: charges an order while no other process does.

import { LockTimeoutError, QuorumError } from 'quorlock'

export async function charge(client, order, pay) {
  try {
    return await client.using(`orders:${order}`, { ttl: 10_000, wait: 5_000 }, async (lease) => {
      await pay(lease.fence)
      lease.check()
      return 'charged'
    })
  } catch (error) {
    if (error instanceof LockTimeoutError) return 'busy, try again later'
    if (error instanceof QuorumError) return 'out of service'
    throw error
  }
}
