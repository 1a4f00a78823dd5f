"""A Python worker of the demo: several threads or tasks that compete for the lock. See run.py."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import quorlock

ERRORS = {
    quorlock.LockTimeoutError: "timeout",
    quorlock.QuorumError: "no quorum",
    quorlock.LeaseLostError: "lost",
}


class Worker:
    """The counter, the history and the loops of threads or tasks."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.loops: int = settings["loops"]
        self.locked: bool = settings["locked"]
        self.running = True
        self._counter = Path(settings["counter"])
        self._history = Path(settings["history"])
        client = quorlock.Client(settings["urls"], ttl=5, wait=30, retry_delay=(0.002, 0.02))
        self.lock = client.lock("counter")
        signal.signal(signal.SIGTERM, self._stop)
        threading.Thread(target=self._watch_stdin, daemon=True).start()

    def _watch_stdin(self) -> None:
        """Stop at the end of stdin, which ends when the demo ends, for whatever reason."""
        os.read(0, 1)
        self._stop()

    def _stop(self, *_: object) -> None:
        self.running = False

    def read(self) -> int:
        return int(self._counter.read_text() or 0)

    def write(self, total: int) -> None:
        self._counter.write_text(str(total))

    def begin(self, asked: int, lease: quorlock.Lease | None) -> dict[str, int]:
        """The entry for an update that begins now, in nanoseconds of CLOCK_MONOTONIC."""
        turn = {"asked": asked, "from": time.monotonic_ns()}
        if lease is not None:
            turn["valid_until"] = turn["from"] + int(lease.remaining * 1e9)
            turn["fence"] = lease.fence
        return turn

    def end(self, turn: dict[str, int]) -> None:
        self._write(turn | {"to": time.monotonic_ns()})

    def record_error(self, error: quorlock.QuorlockError) -> None:
        self._write({"error": ERRORS.get(type(error), str(error))})

    def _write(self, entry: dict[str, Any]) -> None:
        with self._history.open("a") as history:
            history.write(json.dumps(entry) + "\n")

    def threads(self) -> None:
        with ThreadPoolExecutor(self.loops) as pool:
            for thread in [pool.submit(self._thread) for _ in range(self.loops)]:
                thread.result()

    def _thread(self) -> None:
        while self.running:
            asked = time.monotonic_ns()
            try:
                if self.locked:
                    with self.lock as lease:
                        turn = self.begin(asked, lease)
                        self._update()
                        self.end(turn)
                        lease.check()
                else:
                    turn = self.begin(asked, None)
                    self._update()
                    self.end(turn)
            except quorlock.QuorlockError as error:
                self.record_error(error)
            time.sleep(0.001)

    def _update(self) -> None:
        """Read, pause, write plus one: loses updates if another process does so meanwhile."""
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
                        turn = self.begin(asked, lease)
                        await self._update_async()
                        self.end(turn)
                        lease.check()
                else:
                    turn = self.begin(asked, None)
                    await self._update_async()
                    self.end(turn)
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
