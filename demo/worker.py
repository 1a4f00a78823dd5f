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
        """Stop at the end of stdin. The demo's end closes it, also if the demo is killed."""
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

    def record_error(self, asked: int, error: quorlock.QuorlockError) -> None:
        name = ERRORS.get(type(error), str(error))
        self._write({"asked": asked, "at": time.monotonic_ns(), "error": name})

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
                        turn["wrote"] = self._update()
                        self.end(turn)
                        lease.check()
                else:
                    turn = self.begin(asked, None)
                    turn["wrote"] = self._update()
                    self.end(turn)
            except quorlock.QuorlockError as error:
                self.record_error(asked, error)
            time.sleep(0.001)

    def _update(self) -> int:
        """Read the counter, pause, write it plus one, and return what was written. This loses
        updates if another process does the same at the same time."""
        total = self.read() + 1
        time.sleep(0.001)
        self.write(total)
        return total

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
                        turn["wrote"] = await self._update_async()
                        self.end(turn)
                        lease.check()
                else:
                    turn = self.begin(asked, None)
                    turn["wrote"] = await self._update_async()
                    self.end(turn)
            except quorlock.QuorlockError as error:
                self.record_error(asked, error)
            await asyncio.sleep(0.001)

    async def _update_async(self) -> int:
        total = self.read() + 1
        await asyncio.sleep(0.001)
        self.write(total)
        return total


def main() -> None:
    settings = json.loads(sys.argv[1])
    worker = Worker(settings)
    if settings["kind"] == "asyncio":
        asyncio.run(worker.tasks())
    else:
        worker.threads()


if __name__ == "__main__":
    main()
