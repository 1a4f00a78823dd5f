r"""Runs the jobs in a table. Any number of workers on any hosts run each job once.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  GATEWAY_URL=http://127.0.0.1:8900 python worker.py
"""

import json
import os
import signal
import time
import urllib.request

import quorlock

import jobs

IDLE = 0.5
"""Seconds between two reads of the table when there is no job to run."""


def main() -> None:
    jobs.create()
    stopping: list[int] = []
    # Not an Event: the code that the handler interrupts may hold the lock of the Event.
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    print("ready", flush=True)
    # Closing the client releases its leases, so other workers do not have to wait for the ttl.
    with quorlock.Client(ttl=5) as locks:
        while not stopping:
            if not work_through(locks, stopping):
                time.sleep(IDLE)


def work_through(locks: quorlock.Client, stopping: list[int]) -> bool:
    """Runs the jobs that can be run now. Returns whether any job was done."""
    worked = False
    for job, account in jobs.waiting():
        if stopping:
            break
        try:
            # Jobs of one account exclude each other, whatever their kind. Skip an account that is
            # locked: there may be jobs of others.
            with locks.lock(f"accounts:{account}", wait=0) as lease:
                worked = do(job, account, lease) or worked
        except quorlock.LockTimeoutError:
            continue
        except quorlock.LeaseLostError as error:
            print(f"job {job} will be repeated: {error}", flush=True)
        except quorlock.QuorumError as error:
            print(f"no quorum: {error}", flush=True)
            break
    return worked


def do(job: int, account: str, lease: quorlock.Lease) -> bool:
    if jobs.is_done(job):  # another worker did it after `waiting()` was read
        return False
    request = urllib.request.Request(
        os.environ["GATEWAY_URL"] + "/bookings",
        json.dumps({"job": job, "account": account}).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": f"job-{job}"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
    lease.check()
    jobs.done(job, lease.fence)
    print(f"job {job} done", flush=True)
    return True


main()
