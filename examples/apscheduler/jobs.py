r"""Creates a report every five minutes, on one of the hosts on which this runs.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  python jobs.py
"""

import logging
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import quorlock
from apscheduler.schedulers.blocking import BlockingScheduler

import runs

EVERY = timedelta(minutes=5)

log = logging.getLogger(__name__)
locks = quorlock.Client(ttl=5)
scheduler = BlockingScheduler(timezone=UTC)


def once(job: str, every: timedelta, work: Callable[[quorlock.Lease, datetime], None]) -> None:
    """Does the work, unless it was done for this period or another host is doing it.

    `every` is the length of a period. Periods start at midnight UTC.
    """
    now = datetime.now(UTC)
    period = now - (now - datetime.min.replace(tzinfo=UTC)) % every
    try:
        # The clocks of the hosts differ, so the lock stays held for a while after the work.
        with locks.lock(f"jobs:{job}", wait=0, keep=every / 5) as lease:
            # Even so, a free lock does not mean that the work is not done, so check this.
            if runs.is_done(job, period):
                return
            work(lease, period)
            lease.check()
            runs.done(job, period, lease.fence)
    except quorlock.LockTimeoutError:
        log.info("%s: another host is at it", job)
    except (quorlock.QuorumError, quorlock.LeaseLostError) as error:
        log.warning("%s: %s", job, error)


def report(lease: quorlock.Lease, period: datetime) -> None:
    print(f"report for {period.isoformat()}", flush=True)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    runs.create()
    # Run one job at a time also within this process, and do not repeat missed ones.
    scheduler.add_job(
        once, "cron", minute="*/5", id="report", args=["report", EVERY, report],
        max_instances=1, coalesce=True, misfire_grace_time=60,
    )  # fmt: skip
    # Not `scheduler.shutdown`: the code that the handler interrupts may hold its lock.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        scheduler.start()
    finally:
        scheduler.shutdown(wait=False)
        # The process ends when a running job is finished.


if __name__ == "__main__":
    main()
