// Pays orders. Only one request at a time handles an order, in all processes of all hosts.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 node dist/main.js

import 'reflect-metadata'
import { Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { QuorlockModule } from 'quorlock/nestjs'
import { OrdersController } from './orders.controller.js'

// The module uses the nodes in QUORLOCK_NODES.
@Module({ imports: [QuorlockModule.forRoot({ ttl: 5_000 })], controllers: [OrdersController] })
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] })
app.enableShutdownHooks()
await app.listen(process.env.PORT ?? 3000)
console.log(`listening on port ${new URL(await app.getUrl()).port}`)
