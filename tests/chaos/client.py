"""The Python client of the chaos run; client.js and core/examples/chaos.rs do the same.

A few loops (threads or tasks) contend for a few resources, sometimes for two of them, in any order.
They wait not at all, for a while, or for ever; some are cancelled while they wait (not in Python's
threads, where a wait cannot be). Each holder reads the protected register, thinks, sometimes for
longer than its lease lasts, and writes what it read plus one, whatever has become of the lease
meanwhile: the register refuses what comes too late. All that happens goes to the history, a JSON
object per line; times are nanoseconds of CLOCK_MONOTONIC:

ask        ask: a number of this wait; resources; wait: for how many milliseconds, null for ever;
           at: just before the call
granted    ask, resources; asked: when; at: now; left: for how much longer the lease is valid;
           fences: of each resource; extended: whether it is extended automatically
look       at, left, while it is held
refused    at, left, resource, after the register refused
release    at, just before the call
released   at, just after it; ok: what it returned
error      ask, at, code
cancel     ask, at, just before the wait is cancelled
cancelled  ask, at, when it is over by that
closed     at, when the client is closed

The clock is always read before `left` is: so a lease with `left` > 0 was valid at `at`, and will be
so, if nobody releases it, until `at + left` at least.

When something comes from stdin, it sees all waits and turns to their ends, and closes its client.
When its stdin ends, it ends with status 0; what is unexpected ends it with another one.
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
"""Milliseconds between two looks at a lease."""

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
    """One write to a file in append mode: a kill loses whole lines, and never mixes them."""
    os.write(history, json.dumps({"event": event, **entry}).encode() + b"\n")


def look(event: str, lease: quorlock.Lease, **entry: Any) -> None:
    at = time.monotonic_ns()
    left = int(lease.remaining * 1e9)
    record(event, token=lease.token, at=at, left=left, **entry)


class Turn:
    """What a loop does, but for waiting."""

    def __init__(self) -> None:
        many = 2 if random.random() < settings["pairs"] else 1
        self.resources = random.sample(settings["resources"], many)
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

    def tell(self, event: str, **entry: Any) -> None:
        record(event, ask=self.ask, at=time.monotonic_ns(), **entry)

    def request(self, lease: quorlock.Lease, op: str, resource: str, value: int) -> bytes:
        """What the register is asked."""
        request = {"op": op, "resource": resource, "client": settings["name"], "value": value}
        return json.dumps(request | {"fence": lease.fences[resource]}).encode() + b"\n"

    def answered(self, lease: quorlock.Lease, resource: str, line: bytes) -> int | None:
        """The value that was read, if the register answered so; None if it refused."""
        answer = json.loads(line)
        if not answer["ok"]:
            look("refused", lease, resource=resource)
            return None
        return int(answer["value"])

    def steps(self) -> list[int]:
        """For how many milliseconds to think, between two looks each."""
        think = random.choice(settings["thinks"])
        return [min(STEP, think - done) for done in range(0, think, STEP)]


def work_in_thread() -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as reader:
        connection.connect(settings["register"])

        def ask(
            turn: Turn, lease: quorlock.Lease, op: str, resource: str, value: int = 0
        ) -> int | None:
            connection.sendall(turn.request(lease, op, resource, value))
            return turn.answered(lease, resource, reader.readline())

        while not over.is_set():
            turn = Turn()
            try:
                lease = turn.lock.acquire()
            except (quorlock.LockTimeoutError, quorlock.QuorumError) as error:
                turn.tell("error", code=error.code)
            else:
                turn.granted(lease)
                values = {each: ask(turn, lease, "read", each) for each in turn.resources}
                if None not in values.values():
                    for step in turn.steps():
                        time.sleep(step / 1000)
                        look("look", lease)
                for resource, value in values.items():
                    if value is not None:
                        ask(turn, lease, "write", resource, value + 1)
                record("release", token=lease.token, at=time.monotonic_ns())
                ok = lease.release()
                record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
            time.sleep(random.choice(settings["pauses"]) / 1000)


async def acquire(turn: Turn) -> quorlock.Lease | None:
    """The lease; None if the wait was cancelled."""
    task = asyncio.ensure_future(turn.lock.acquire_async())
    if random.random() < settings["cancelled"]:
        patience = random.choice(settings["cancels"]) / 1000
        if not (await asyncio.wait([task], timeout=patience))[0]:
            turn.tell("cancel")
            task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        turn.tell("cancelled")
        return None


async def work_in_task() -> None:
    reader, writer = await asyncio.open_unix_connection(settings["register"])

    async def ask(
        turn: Turn, lease: quorlock.Lease, op: str, resource: str, value: int = 0
    ) -> int | None:
        writer.write(turn.request(lease, op, resource, value))
        return turn.answered(lease, resource, await reader.readline())

    while not over.is_set():
        turn = Turn()
        try:
            lease = await acquire(turn)
        except (quorlock.LockTimeoutError, quorlock.QuorumError) as error:
            turn.tell("error", code=error.code)
            lease = None
        if lease is not None:
            turn.granted(lease)
            values = {each: await ask(turn, lease, "read", each) for each in turn.resources}
            if None not in values.values():
                for step in turn.steps():
                    await asyncio.sleep(step / 1000)
                    look("look", lease)
            for resource, value in values.items():
                if value is not None:
                    await ask(turn, lease, "write", resource, value + 1)
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
