"""A process that contends for a lock, in Python. worker.js does the same in Node.js.

It reads one JSON object per line from stdin and answers each with one JSON line on stdout:

    {"open": library, "urls": [...], "tuned": false, "clients": 1, "warm": resource}
        {}: the clients are connected, each of which runs in its own thread; or {"error": reason}
    {"run": resource, "start": ns, "until": ns, "hold": seconds, "once": false}
        {"turns": [[client, called, acquired, releasing, released], ...],
         "failures": n, "failure": the last one, "unfinished": [[called, ended], ...],
         "stuck": false}
        From `start`, each client acquires, holds and releases: repeatedly until `until`, or once.
        Waits in progress at `until` may take two more seconds. If some still wait then, the process
        is stuck and must be killed.
    {"close": true}
        {}: the clients are closed

Times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from libraries import Take, connect

GRACE = 2.0


@dataclass
class Record:
    """The record of one client."""

    client: int
    turns: list[tuple[int, ...]] = field(default_factory=list)
    failures: int = 0
    failure: str = ""
    unfinished: list[tuple[int, int]] = field(default_factory=list)
    waiting_since: int | None = None

    def failed(self, error: Exception) -> None:
        self.failures += 1
        self.failure = f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Run:
    """The parameters of a "run" command."""

    resource: str
    start: int
    until: int
    hold: float
    once: bool


def loop(take: Take, request: Run, record: Record) -> None:
    time.sleep(max(0, request.start - time.monotonic_ns()) / 1e9)
    while (called := time.monotonic_ns()) < request.until:
        record.waiting_since = called
        while True:
            try:
                release = take(request.resource)
                break
            except Exception as error:  # for example, some libraries give up after a time
                record.failed(error)
                if (now := time.monotonic_ns()) >= request.until:
                    record.unfinished.append((called, now))
                    record.waiting_since = None
                    return
        acquired = time.monotonic_ns()
        record.waiting_since = None
        time.sleep(request.hold)
        releasing = time.monotonic_ns()
        try:
            release()
        except Exception as error:
            record.failed(error)
        record.turns.append((record.client, called, acquired, releasing, time.monotonic_ns()))
        if request.once:
            return


def run(takes: list[Take], request: Run) -> dict[str, Any]:
    records = [Record(number) for number in range(len(takes))]
    threads = [
        threading.Thread(target=loop, args=(take, request, record), daemon=True)
        for take, record in zip(takes, records, strict=True)
    ]
    for thread in threads:
        thread.start()
    last = request.until / 1e9 + GRACE
    for thread in threads:
        thread.join(max(0.0, last - time.monotonic()))
    for record in records:
        if record.waiting_since is not None:
            record.unfinished.append((record.waiting_since, time.monotonic_ns()))
    return {
        "turns": [turn for record in records for turn in record.turns],
        "failures": sum(record.failures for record in records),
        "failure": next((record.failure for record in records if record.failure), ""),
        "unfinished": [wait for record in records for wait in record.unfinished],
        "stuck": any(thread.is_alive() for thread in threads),
    }


def main() -> None:
    stack = ExitStack()
    takes: list[Take] = []

    def answer(command: dict[str, Any]) -> dict[str, Any]:
        match command:
            case {"open": str(library), "clients": int(clients), "warm": str(warm)}:
                for number in range(clients):
                    take = connect(library, stack, command["urls"], command["tuned"])
                    take(f"{warm}-{number}")()
                    takes.append(take)
                return {}
            case {"run": str(resource), "start": int(start), "until": int(until)}:
                request = Run(resource, start, until, command["hold"], command["once"])
                return run(takes, request)
            case {"close": True}:
                takes.clear()
                stack.close()
                return {}
        raise ValueError(f"unknown command: {command}")

    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
