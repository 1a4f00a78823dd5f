import { Catch, Logger, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common'
import type { Response } from 'express'
import { LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

/** Answers lock errors: 409 if another request holds the lock, else 503. */
@Catch(LockTimeoutError, QuorumError, LeaseLostError)
export class LockErrorFilter implements ExceptionFilter {
  private readonly log = new Logger(LockErrorFilter.name)

  catch(error: LockTimeoutError | QuorumError | LeaseLostError, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<Response>()
    if (response.closed) return
    const status = error instanceof LockTimeoutError ? 409 : 503
    if (status !== 409) this.log.warn(error.message) // contention is normal
    response.status(status).set('Retry-After', '1').json({ error: error.code })
  }
}
