"""The Python client of the chaos run; client.js and core/examples/chaos.rs do the same.

A few loops (threads or tasks) contend for a few resources, sometimes for two at once, in any order.
An acquire does not wait, waits for some time, or waits forever. Some waits are cancelled, except in
Python threads, where this is impossible. Each holder reads the protected register, pauses, and
writes the value plus one. Some pauses are longer than the lease. The holder writes even if it has
lost the lease: the register refuses late writes. All events go to the history, one JSON object per
line; times are nanoseconds of CLOCK_MONOTONIC:

ask        just before an acquire. ask: its number; resources; wait: milliseconds, null for forever;
           at: the time
granted    the acquire returned a lease. ask, resources; asked: the time of `ask`; at: the time;
           left: how long the lease stays valid; fences: by resource; extended: whether it is
           renewed automatically
look       a check of a held lease. at, left
refused    the register refused the holder. at, left, resource
release    just before the release. at
released   just after the release. at; ok: the result
error      the acquire failed. ask, at, code
cancel     just before the wait is cancelled. ask, at
cancelled  the acquire ended because it was cancelled. ask, at
closed     the client is closed. at

The clock is always read before `left`. So a lease with `left` > 0 was valid at `at`, and stays
valid until at least `at + left` unless it is released.

On input from stdin, each loop finishes its current acquire and its work with the lock; then the
process closes its client. At the end of stdin, it exits with status 0. After an unexpected error,
it exits with another status.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import threading
import time
import traceback
from itertools import count
from typing import Any

import quorlock

STEP = 20
"""The maximum time, in milliseconds, between two checks of a lease."""

settings = json.loads(sys.argv[1])
client = quorlock.Client(
    settings["urls"],
    ttl=settings["ttl"] / 1000,
    restart_guard=settings["guard"] and settings["guard"] / 1000,
    node_timeout=settings["node_timeout"] / 1000,
    retry_delay=tuple(delay / 1000 for delay in settings["retry_delay"]),
)
history = os.open(settings["history"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
over = threading.Event()
asks = count(1)


def record(event: str, **entry: Any) -> None:
    """Appends an event with a single write, so a kill leaves no partial line."""
    os.write(history, json.dumps({"event": event, **entry}).encode() + b"\n")


def look(event: str, lease: quorlock.Lease, **entry: Any) -> None:
    at = time.monotonic_ns()
    left = int(lease.remaining * 1e9)
    record(event, token=lease.token, at=at, left=left, **entry)


class Turn:
    """One pass of a loop: an acquire and requests to the register. Used by threads and tasks."""

    def __init__(self) -> None:
        many = 2 if random.random() < settings["pairs"] else 1
        self.resources: list[str] = random.sample(settings["resources"], many)
        self.extended = random.random() < 0.5
        wait = random.choice(settings["waits"])
        seconds = None if wait is None else wait / 1000
        self.lock = client.lock(*self.resources, wait=seconds, auto_extend=self.extended)
        self.ask = next(asks)
        self.asked = time.monotonic_ns()
        record("ask", ask=self.ask, resources=self.resources, wait=wait, at=self.asked)

    def granted(self, lease: quorlock.Lease) -> None:
        look(
            "granted",
            lease,
            ask=self.ask,
            resources=self.resources,
            fences=lease.fences,
            extended=self.extended,
            asked=self.asked,
        )

    def record(self, event: str, **entry: Any) -> None:
        record(event, ask=self.ask, at=time.monotonic_ns(), **entry)

    def request(self, lease: quorlock.Lease, op: str, resource: str, value: int) -> bytes:
        """Returns a request to the register."""
        request = {"op": op, "resource": resource, "client": settings["name"], "value": value}
        return json.dumps(request | {"fence": lease.fences[resource]}).encode() + b"\n"

    def parse_answer(self, lease: quorlock.Lease, resource: str, line: bytes) -> int | None:
        """Returns the value in the register's answer; None if the register refused the request."""
        answer = json.loads(line)
        if not answer["ok"]:
            look("refused", lease, resource=resource)
            return None
        return int(answer["value"])

    def steps(self) -> list[int]:
        """Splits a random pause into steps, in milliseconds. The lease is checked after each."""
        think = random.choice(settings["thinks"])
        return [min(STEP, think - done) for done in range(0, think, STEP)]


def work_in_thread() -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as reader:
        connection.connect(settings["register"])

        def send(
            turn: Turn, lease: quorlock.Lease, op: str, resource: str, value: int = 0
        ) -> int | None:
            connection.sendall(turn.request(lease, op, resource, value))
            return turn.parse_answer(lease, resource, reader.readline())

        while not over.is_set():
            turn = Turn()
            try:
                lease = turn.lock.acquire()
            except (quorlock.LockTimeoutError, quorlock.QuorumError) as error:
                turn.record("error", code=error.code)
            else:
                turn.granted(lease)
                values = {each: send(turn, lease, "read", each) for each in turn.resources}
                if None not in values.values():
                    for step in turn.steps():
                        time.sleep(step / 1000)
                        look("look", lease)
                for resource, value in values.items():
                    if value is not None:
                        send(turn, lease, "write", resource, value + 1)
                record("release", token=lease.token, at=time.monotonic_ns())
                ok = lease.release()
                record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
            time.sleep(random.choice(settings["pauses"]) / 1000)


async def acquire(turn: Turn) -> quorlock.Lease | None:
    """Acquires a lease, and sometimes cancels the wait. Returns None if the wait was cancelled."""
    task = asyncio.ensure_future(turn.lock.acquire_async())
    if random.random() < settings["cancelled"]:
        delay = random.choice(settings["cancels"]) / 1000
        if not (await asyncio.wait([task], timeout=delay))[0]:
            turn.record("cancel")
            task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        turn.record("cancelled")
        return None


async def work_in_task() -> None:
    reader, writer = await asyncio.open_unix_connection(settings["register"])

    async def send(
        turn: Turn, lease: quorlock.Lease, op: str, resource: str, value: int = 0
    ) -> int | None:
        writer.write(turn.request(lease, op, resource, value))
        return turn.parse_answer(lease, resource, await reader.readline())

    while not over.is_set():
        turn = Turn()
        try:
            lease = await acquire(turn)
        except (quorlock.LockTimeoutError, quorlock.QuorumError) as error:
            turn.record("error", code=error.code)
            lease = None
        if lease is not None:
            turn.granted(lease)
            values = {each: await send(turn, lease, "read", each) for each in turn.resources}
            if None not in values.values():
                for step in turn.steps():
                    await asyncio.sleep(step / 1000)
                    look("look", lease)
            for resource, value in values.items():
                if value is not None:
                    await send(turn, lease, "write", resource, value + 1)
            record("release", token=lease.token, at=time.monotonic_ns())
            ok = await lease.release_async()
            record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
        await asyncio.sleep(random.choice(settings["pauses"]) / 1000)
    writer.close()


async def run_tasks() -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(settings["loops"]):
            group.create_task(work_in_task())


def run_threads() -> None:
    def fail(args: Any) -> None:
        traceback.print_exception(args.exc_value)
        os._exit(1)

    threading.excepthook = fail
    threads = [threading.Thread(target=work_in_thread) for _ in range(settings["loops"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_for_the_end() -> None:
    os.read(0, 1)
    over.set()


ending = threading.Thread(target=wait_for_the_end, daemon=True)
ending.start()
if settings["kind"] == "asyncio":
    asyncio.run(run_tasks())
else:
    run_threads()
client.close()
record("closed", at=time.monotonic_ns())
os.read(0, 1)
