// Runs jobs from a queue and a schedule. Only one job for an order runs at a time, and one host creates each report.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 QUEUE_URL=redis://127.0.0.1:6379 \
//     GATEWAY_URL=http://127.0.0.1:8900 node dist/worker.js

import 'reflect-metadata'
import { BullModule } from '@nestjs/bullmq'
import { Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ScheduleModule } from '@nestjs/schedule'
import { QuorlockModule } from 'quorlock/nestjs'
import { OrdersProcessor, Reports } from './jobs.js'

@Module({
  imports: [
    QuorlockModule.forRoot({ ttl: 5_000 }), // uses the nodes in QUORLOCK_NODES
    ScheduleModule.forRoot(),
    BullModule.forRoot({ connection: { url: process.env.QUEUE_URL! } }),
    BullModule.registerQueue({ name: 'orders' }),
  ],
  providers: [OrdersProcessor, Reports],
})
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] })
app.enableShutdownHooks()
console.log('ready')
