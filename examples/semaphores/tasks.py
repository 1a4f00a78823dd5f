r"""Exports data, with at most two exports of a customer at a time. Others do not wait for them.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
  BROKER_URL=redis://127.0.0.1:6379 GATEWAY_URL=http://127.0.0.1:8900 celery --app tasks worker
"""

import json
import os
import random
import urllib.request
from typing import Any

import quorlock
from celery import Celery

LIMIT = 2  # the same in worker.js
BUSY = 1.0  # seconds

app = Celery("exports", broker=os.environ["BROKER_URL"])
app.conf.update(
    # If a worker dies, another one runs its task again.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)

# Created before the pool forks: it does not connect until it is used.
locks = quorlock.Client(ttl=3)


@app.task(
    bind=True,
    autoretry_for=(quorlock.QuorumError, quorlock.LeaseLostError),
    retry_backoff=1,
    retry_backoff_max=60,
    max_retries=None,
)
def export(self: Any, customer: str, number: int) -> str:
    lease = locks.semaphore(f"customers:{customer}", limit=LIMIT).try_acquire()
    if lease is None:
        # Do not wait in the worker: it can run a task of another customer.
        raise self.retry(countdown=random.uniform(BUSY, 2 * BUSY))
    with lease:
        send(customer, number)
        return "exported"


def send(customer: str, number: int) -> None:
    request = urllib.request.Request(
        os.environ["GATEWAY_URL"] + "/exports",
        json.dumps({"account": customer, "number": number}).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": f"export-{number}"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
