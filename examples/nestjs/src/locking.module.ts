import { Inject, Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common'
import { APP_FILTER } from '@nestjs/core'
import { Client, type ClientOptions } from 'quorlock'
import { LockErrorFilter } from './lock-error.filter.js'

/** Provides one client for the application: `constructor(private readonly locks: Client)`. */
@Module({})
export class LockingModule implements OnApplicationShutdown {
  constructor(@Inject(Client) private readonly locks: Client) {}

  /** Uses the nodes in QUORLOCK_NODES. */
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

  /** Called after the requests in progress were answered. */
  async onApplicationShutdown(): Promise<void> {
    await this.locks.close()
  }
}
