import { Controller, HttpCode, Param, Post } from '@nestjs/common'
import type { Lease } from 'quorlock'
import { HeldLease, Locked } from 'quorlock/nestjs'

@Controller('orders')
export class OrdersController {
  private readonly paid = new Set<string>() // stands for a database

  @Post(':order/pay')
  @HttpCode(200)
  @Locked((request) => `orders:${request.params.order}`, { wait: 1_000 })
  async pay(@Param('order') order: string, @HeldLease() lease: Lease): Promise<{ charged: boolean }> {
    if (this.paid.has(order)) return { charged: false }
    await this.charge(order, lease)
    this.paid.add(order)
    return { charged: true }
  }

  private async charge(order: string, lease: Lease): Promise<void> {
    const answer = await fetch(`${process.env.GATEWAY_URL}/charges`, {
      method: 'POST',
      // The lock excludes other requests; the key makes a repetition after a crash harmless.
      headers: { 'Idempotency-Key': `order-${order}` },
      body: JSON.stringify({ order, fence: lease.fence }),
      // A lost lease aborts the call.
      signal: lease.signal,
    })
    if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
  }
}
