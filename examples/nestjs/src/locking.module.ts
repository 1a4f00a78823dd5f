import { Inject, Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common'
import { APP_FILTER } from '@nestjs/core'
import { Client, type ClientOptions } from 'quorlock'
import { LockErrorFilter } from './lock-error.filter.js'

/** One client for the application; `constructor(private readonly locks: Client)` gets it. */
@Module({})
export class LockingModule implements OnApplicationShutdown {
  constructor(@Inject(Client) private readonly locks: Client) {}

  /** The nodes are those in QUORLOCK_NODES. */
  static forRoot(options: ClientOptions = {}): DynamicModule {
    return {
      module: LockingModule,
      global: true,
      providers: [
        { provide: Client, useFactory: () => new Client(undefined, options) },
        { provide: APP_FILTER, useClass: LockErrorFilter },
      ],
      exports: [Client],
    }
  }

  /** After the requests under way were answered. */
  async onApplicationShutdown(): Promise<void> {
    await this.locks.close()
  }
}
