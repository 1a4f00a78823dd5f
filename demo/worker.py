"""A Python worker of the demo: several threads or tasks that fight for the lock. See run.py."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import quorlock

ERRORS = {
    quorlock.LockTimeoutError: "timeout",
    quorlock.QuorumError: "no quorum",
    quorlock.LeaseLostError: "lost",
}


class Worker:
    """What threads and tasks have in common: the ledger, the history, when to stop."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.loops: int = settings["loops"]
        self.locked: bool = settings["locked"]
        self.running = True
        self._ledger = Path(settings["ledger"])
        self._history = Path(settings["history"])
        client = quorlock.Client(settings["urls"], ttl=5, wait=30, retry_delay=(0.002, 0.02))
        self.lock = client.lock("ledger")
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.running = False

    def read(self) -> int:
        return int(self._ledger.read_text() or 0)

    def write(self, total: int) -> None:
        self._ledger.write_text(str(total))

    def record(self, asked: int, began: int, ended: int, fence: int | None) -> None:
        self._write({"asked": asked, "from": began, "to": ended, "fence": fence})

    def record_error(self, error: quorlock.QuorlockError) -> None:
        self._write({"error": ERRORS.get(type(error), str(error))})

    def _write(self, entry: dict[str, Any]) -> None:
        with self._history.open("a") as history:
            history.write(json.dumps(entry) + "\n")

    def threads(self) -> None:
        threads = [threading.Thread(target=self._thread) for _ in range(self.loops)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _thread(self) -> None:
        while self.running:
            asked = time.monotonic_ns()
            try:
                if self.locked:
                    with self.lock as lease:
                        began = time.monotonic_ns()
                        self._update()
                        self.record(asked, began, time.monotonic_ns(), lease.fence)
                        lease.check()
                else:
                    self._update()
                    self.record(asked, asked, time.monotonic_ns(), None)
            except quorlock.QuorlockError as error:
                self.record_error(error)
            time.sleep(0.001)

    def _update(self) -> None:
        """Read, think, write: loses updates if anybody else does the same meanwhile."""
        total = self.read()
        time.sleep(0.001)
        self.write(total + 1)

    async def tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.loops):
                group.create_task(self._task())

    async def _task(self) -> None:
        while self.running:
            asked = time.monotonic_ns()
            try:
                if self.locked:
                    async with self.lock as lease:
                        began = time.monotonic_ns()
                        await self._update_async()
                        self.record(asked, began, time.monotonic_ns(), lease.fence)
                        lease.check()
                else:
                    await self._update_async()
                    self.record(asked, asked, time.monotonic_ns(), None)
            except quorlock.QuorlockError as error:
                self.record_error(error)
            await asyncio.sleep(0.001)

    async def _update_async(self) -> None:
        total = self.read()
        await asyncio.sleep(0.001)
        self.write(total + 1)


def main() -> None:
    settings = json.loads(sys.argv[1])
    worker = Worker(settings)
    if settings["kind"] == "asyncio":
        asyncio.run(worker.tasks())
    else:
        worker.threads()


if __name__ == "__main__":
    main()
