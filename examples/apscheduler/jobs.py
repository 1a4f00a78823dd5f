"""A report every five minutes, by one of the hosts on which this runs.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 python jobs.py
"""

import logging
import signal
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
    """Does the work, unless it was done for this period or another host is at it.

    `every` is how often the clock strikes, from midnight in UTC on.
    """
    now = datetime.now(UTC)
    period = now - (now - datetime.min.replace(tzinfo=UTC)) % every
    try:
        with locks.lock(f"jobs:{job}", wait=0) as lease:
            # The clocks of the hosts do not strike at the same moment, and a lock that is free
            # again does not say that the work was done.
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
    # Only one at a time in this process, too, and none of those that were missed.
    scheduler.add_job(
        once, "cron", minute="*/5", id="report", args=["report", EVERY, report],
        max_instances=1, coalesce=True, misfire_grace_time=60,
    )  # fmt: skip
    # A job that runs is finished first.
    signal.signal(signal.SIGTERM, lambda *_: scheduler.shutdown(wait=False))
    scheduler.start()


if __name__ == "__main__":
    main()
