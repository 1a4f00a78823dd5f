import {
  applyDecorators,
  createParamDecorator,
  HttpException,
  Inject,
  Injectable,
  mixin,
  UseInterceptors,
  type CallHandler,
  type ExecutionContext,
  type NestInterceptor,
} from '@nestjs/common'
import type { Request, Response } from 'express'
import { lastValueFrom, from, type Observable } from 'rxjs'
import { Client, type Lease, type LockOptions } from 'quorlock'

const leases = new WeakMap<Request, Lease>()

/** Holds a lock while the handler runs: `@Locked((request) => `orders:${request.params.order}`)`. */
export function Locked(resource: (request: Request) => string, options: LockOptions = {}) {
  @Injectable()
  class LockInterceptor implements NestInterceptor {
    constructor(@Inject(Client) private readonly locks: Client) {}

    intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
      const request = context.switchToHttp().getRequest<Request>()
      const signal = whenGone(context.switchToHttp().getResponse<Response>())
      return from(
        this.locks.using(resource(request), { ...options, signal }, (lease) => {
          leases.set(request, lease)
          return lastValueFrom(next.handle(), { defaultValue: undefined })
        }),
      )
    }
  }
  return applyDecorators(UseInterceptors(mixin(LockInterceptor)))
}

/** The lease of the lock that `@Locked` holds. */
export const HeldLease = createParamDecorator((_: unknown, context: ExecutionContext): Lease => {
  const lease = leases.get(context.switchToHttp().getRequest<Request>())
  if (lease === undefined) throw new Error('@HeldLease() needs @Locked()')
  return lease
})

/** Returns a signal that aborts when the client disconnects, which ends the wait. */
function whenGone(response: Response): AbortSignal {
  const gone = new AbortController()
  response.on('close', () => gone.abort(new HttpException('the client has hung up', 499)))
  return gone.signal
}
