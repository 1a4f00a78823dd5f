"""The Python client of the chaos run; client.js and core/examples/chaos.rs do the same.

A few loops (threads or tasks) contend for a few resources. Each holder reads the protected
register, thinks, sometimes for longer than its lease lasts, and writes what it read plus one,
whatever has become of the lease meanwhile: the register refuses what comes too late. All that
happens goes to the history, a JSON object per line; times are nanoseconds of CLOCK_MONOTONIC:

granted    asked: when; at: now; left: for how much longer the lease is valid; extended: whether
           it is extended automatically
look       at, left, while it is held
refused    at, left, after the register refused
release    at, just before the call
released   at, just after it; ok: what it returned
error      asked, at, code

The clock is always read before `left` is: so a lease with `left` > 0 was valid at `at`, and will be
so, if nobody releases it, until `at + left` at least.

It ends when its stdin ends, with status 0; what is unexpected ends it with another one.
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
    retry_delay=(0.002, 0.02),
)
history = os.open(settings["history"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
over = threading.Event()


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
        self.resource = random.choice(settings["resources"])
        self.extended = random.random() < 0.5
        wait = random.choice(settings["waits"]) / 1000
        self.lock = client.lock(self.resource, wait=wait, auto_extend=self.extended)
        self.asked = time.monotonic_ns()

    def granted(self, lease: quorlock.Lease) -> None:
        look(
            "granted",
            lease,
            resource=self.resource,
            fence=lease.fence,
            extended=self.extended,
            asked=self.asked,
        )

    def failed(self, error: quorlock.QuorlockError) -> None:
        at = time.monotonic_ns()
        record("error", resource=self.resource, asked=self.asked, at=at, code=error.code)

    def request(self, lease: quorlock.Lease, op: str, value: int) -> bytes:
        """What the register is asked."""
        name = settings["name"]
        request = {"op": op, "resource": self.resource, "client": name, "fence": lease.fence}
        return json.dumps(request | {"value": value}).encode() + b"\n"

    def answered(self, lease: quorlock.Lease, line: bytes) -> int | None:
        """The value that was read, if the register answered so; None if it refused."""
        answer = json.loads(line)
        if not answer["ok"]:
            look("refused", lease)
            return None
        return int(answer["value"])

    def steps(self) -> list[int]:
        """For how many milliseconds to think, between two looks each."""
        think = random.choice(settings["thinks"])
        return [min(STEP, think - done) for done in range(0, think, STEP)]


def work_in_thread() -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as reader:
        connection.connect(settings["register"])

        def ask(turn: Turn, lease: quorlock.Lease, op: str, value: int = 0) -> int | None:
            connection.sendall(turn.request(lease, op, value))
            return turn.answered(lease, reader.readline())

        while not over.is_set():
            turn = Turn()
            try:
                lease = turn.lock.acquire()
            except (quorlock.LockTimeoutError, quorlock.QuorumError) as error:
                turn.failed(error)
            else:
                turn.granted(lease)
                if (value := ask(turn, lease, "read")) is not None:
                    for step in turn.steps():
                        time.sleep(step / 1000)
                        look("look", lease)
                    ask(turn, lease, "write", value + 1)
                record("release", token=lease.token, at=time.monotonic_ns())
                ok = lease.release()
                record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
            time.sleep(random.choice(settings["pauses"]) / 1000)


async def work_in_task() -> None:
    reader, writer = await asyncio.open_unix_connection(settings["register"])

    async def ask(turn: Turn, lease: quorlock.Lease, op: str, value: int = 0) -> int | None:
        writer.write(turn.request(lease, op, value))
        return turn.answered(lease, await reader.readline())

    while not over.is_set():
        turn = Turn()
        try:
            lease = await turn.lock.acquire_async()
        except (quorlock.LockTimeoutError, quorlock.QuorumError) as error:
            turn.failed(error)
        else:
            turn.granted(lease)
            if (value := await ask(turn, lease, "read")) is not None:
                for step in turn.steps():
                    await asyncio.sleep(step / 1000)
                    look("look", lease)
                await ask(turn, lease, "write", value + 1)
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


threading.Thread(target=wait_for_the_end, daemon=True).start()
if settings["kind"] == "asyncio":
    asyncio.run(run_tasks())
else:
    run_threads()
