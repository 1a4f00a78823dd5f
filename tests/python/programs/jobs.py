"""A Celery application whose workers are forked.

Each job increments the number in a file while it holds the lock. The message queue is the directory
$QUEUE. If $HOLD is set, the parent process of the workers holds a lease of its own.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery  # type: ignore[import-untyped]

import quorlock

QUEUE = Path(os.environ["QUEUE"])
COUNTER = QUEUE / "counter"
WORKERS = QUEUE / "workers"

app = Celery("jobs", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(QUEUE),
        "data_folder_out": str(QUEUE),
        "control_folder": str(QUEUE / "control"),
    },
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)

client = quorlock.Client(wait=60, retry_delay=(0.001, 0.02))
HOLDS = bool(os.environ["HOLD"])
if HOLDS:
    # Acquired here so that the client is in use when the workers are forked.
    lease_of_parent = client.lock("parent").acquire()


@app.task  # type: ignore[untyped-decorator]
@client.lock("counter")
def count() -> None:
    assert not HOLDS or not lease_of_parent.valid
    number = int(COUNTER.read_text())
    time.sleep(0.001)
    COUNTER.write_text(str(number + 1))
    (WORKERS / str(os.getpid())).touch()
