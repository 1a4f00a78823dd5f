r"""Sends each invoice once, even if its task is sent, retried or delivered more than once.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  BROKER_URL=redis://127.0.0.1:6379 GATEWAY_URL=http://127.0.0.1:8900 celery --app tasks worker
"""

import json
import os
import urllib.request

import quorlock
from celery import Celery

import store

app = Celery("invoices", broker=os.environ["BROKER_URL"])
app.conf.update(
    # If a worker dies, another one runs its task again. So a task may run twice: hence the lock.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)

# Created before the pool forks: it does not connect until it is used, so each child gets its own
# connections.
locks = quorlock.Client(ttl=5)

store.create()


@app.task(
    # If the lock is held, the nodes are down or the lease was lost, retry with growing delays.
    autoretry_for=(quorlock.LockTimeoutError, quorlock.QuorumError, quorlock.LeaseLostError),
    retry_backoff=1,
    retry_backoff_max=60,
    max_retries=None,
)
def send_invoice(invoice: int) -> str:
    # Do not wait: the worker can run other tasks, and this one is retried.
    with locks.lock(f"invoices:{invoice}", wait=0) as lease:
        # The lock does not show whether the work is done, so check the table.
        if store.is_sent(invoice):
            return "sent before"
        deliver(invoice)
        lease.check()
        store.mark_sent(invoice, lease.fence)
        return "sent"


def deliver(invoice: int) -> None:
    request = urllib.request.Request(
        os.environ["GATEWAY_URL"] + "/mails",
        json.dumps({"invoice": invoice}).encode(),
        # Makes a repetition harmless if the worker dies or is paused before `mark_sent`.
        {"Content-Type": "application/json", "Idempotency-Key": f"invoice-{invoice}"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
