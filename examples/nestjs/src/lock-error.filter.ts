import { Catch, Logger, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common'
import type { Response } from 'express'
import { LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

/** What a client is told: to come back, or that it is not its fault. */
@Catch(LockTimeoutError, QuorumError, LeaseLostError)
export class LockErrorFilter implements ExceptionFilter {
  private readonly log = new Logger(LockErrorFilter.name)

  catch(error: LockTimeoutError | QuorumError | LeaseLostError, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<Response>()
    if (response.closed) return
    const status = error instanceof LockTimeoutError ? 409 : 503
    if (status !== 409) this.log.warn(error.message) // that somebody else is at it is no trouble
    response.status(status).set('Retry-After', '1').json({ error: error.code })
  }
}
