import { Processor, WorkerHost } from '@nestjs/bullmq'
import { Injectable } from '@nestjs/common'
import { Cron } from '@nestjs/schedule'
import type { Job } from 'bullmq'
import { type Lease, LockTimeoutError } from 'quorlock'
import { HeldLease, Locked } from 'quorlock/nestjs'

async function post(path: string, key: string, lease: Lease): Promise<void> {
  const answer = await fetch(`${process.env.GATEWAY_URL}/${path}`, {
    method: 'POST',
    headers: { 'Idempotency-Key': key },
    body: JSON.stringify({ fence: lease.fence }),
    signal: lease.signal, // a lost lease aborts the call
  })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
}

@Processor('orders')
export class OrdersProcessor extends WorkerHost {
  // If others hold the lock for a second, the job fails. BullMQ repeats it if it has attempts left.
  @Locked((job: Job) => `orders:${job.data.order}`, { wait: 1_000 })
  async process(job: Job, token?: string, @HeldLease() lease?: Lease): Promise<void> {
    await post('charges', `order-${job.data.order}`, lease!)
  }
}

@Injectable()
export class Reports {
  @Cron(process.env.SCHEDULE ?? '0 3 * * *', { timeZone: 'UTC' })
  async everyNight(): Promise<void> {
    try {
      await this.report()
    } catch (error) {
      if (!(error instanceof LockTimeoutError)) throw error // @nestjs/schedule logs it
      console.log('another host creates the report')
    }
  }

  // The clocks of the hosts differ, so the lock stays held for a minute after the work.
  @Locked('jobs:report', { wait: 0, keep: 60_000 })
  async report(@HeldLease() lease?: Lease): Promise<void> {
    const day = new Date().toISOString().slice(0, 10)
    await post('reports', `report-${day}`, lease!)
    console.log(`report of ${day} created`)
  }
}
