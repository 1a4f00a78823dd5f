"""The Python client of the chaos run; client.js and core/examples/chaos.rs do the same.

A few loops (threads or tasks) contend for a few resources, sometimes for two at once, in any order,
and for some of them in shared mode.
An acquire does not wait, waits for some time, or waits forever. Some waits are cancelled, except in
Python threads, where this is impossible. Each holder reads the protected register, pauses, and
writes the value plus one. Some pauses are longer than the lease. The holder writes even if it has
lost the lease: the register refuses late writes. A reader writes nothing. Some holders then change
the mode of the lease: they downgrade it and read again, or try to upgrade it to write after all.
Some holders then detach their lease, and leave
its text at the register. There, a client in another language takes it, and adopts the lease.

Further loops acquire permits of one semaphore, one or two at once, and hold them as long. They do
not use the register.

One more loop is a candidate for the leader of a resource of its own. A leader pauses, and then ends
its term, or hands it over to another client by name. Another loop observes the leaders.

All events go to the history, one JSON object per line; times are nanoseconds of CLOCK_MONOTONIC:

ask        just before an acquire or an adoption. ask: its number; resources; wait: milliseconds,
           null for forever; at: the time; giver: for an adoption, the token of the giver
granted    the acquire returned a lease. ask, resources; asked: the time of `ask`; at: the time;
           left: how long the lease stays valid; fences: by resource; shared: the resources in
           shared mode; extended: whether it is renewed automatically; giver. For permits, each
           slot is a resource, and permits is the number that was asked for. extended may be a
           number: the heartbeat timeout, in milliseconds, of a holder that sends no heartbeat
look       a check of a held lease. at, left
refused    the register refused the holder. at, left, resource
downgrade  just before the lease is made shared. at
upgrade    just before a try to upgrade the lease. at. Then `ask` and its result, for a new lease
upgraded   just after that. at; ok: whether there is a new lease; left: how long this one is valid
release    just before the release. at
released   just after the release. at; ok: the result
detach     just before the detach. at; within: milliseconds
detached   just after the detach. at; ok: whether it succeeded. If not, a release follows.
hand       just before a leader hands its lease over. at; to: the name of the client
handed     just after that. at; ok: whether that client is the leader now; left: how long the lease
           is still valid. If it is, a release follows.
observed   an observer was told of a leader. at, resource, holder, fence
error      the acquire failed. ask, at, code
cancel     just before the wait is cancelled. ask, at, giver
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
from contextlib import suppress
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


def shared(lease: quorlock.Lease) -> list[str]:
    """Returns the resources that the lease holds in shared mode."""
    return [name for name, mode in lease.modes.items() if mode == "shared"]


def renewal(extended: bool | int) -> Any:
    """Returns the options of a lease that is renewed as the history says."""
    timeout = None if isinstance(extended, bool) else extended / 1000
    return {"auto_extend": bool(extended), "heartbeat_timeout": timeout}


class Turn:
    """One pass of a loop: an acquire and requests to the register. Used by threads and tasks."""

    def __init__(self, offer: Any) -> None:
        """`offer` is the register's answer to a request for a detached lease."""
        many = 2 if random.random() < settings["pairs"] else 1
        self.resources: list[str] = random.sample(settings["resources"], many)
        self.giver, self.text = offer.get("giver"), offer.get("text")
        self.resources = offer.get("resources", self.resources)
        self.extended = random.choice(settings["renewals"])
        wait = random.choice(settings["waits"])
        seconds = None if wait is None else wait / 1000
        self.options: Any = {"wait": seconds, **renewal(self.extended)}
        if not self.text:
            some = [each for each in self.resources if random.random() < settings["sharing"]]
            self.options["mode"] = dict.fromkeys(some, "shared")
        self.begin(wait)

    def begin(self, wait: int | None) -> None:
        """Records the beginning of the acquire."""
        self.ask = next(asks)
        self.asked = time.monotonic_ns()
        record(
            "ask",
            ask=self.ask,
            resources=self.resources,
            wait=wait,
            at=self.asked,
            giver=self.giver,
        )

    def acquire(self) -> quorlock.Lease:
        if self.text:
            return client.adopt(self.text, **self.options)
        return client.lock(*self.resources, **self.options).acquire()

    async def acquire_async(self) -> quorlock.Lease:
        if self.text:
            return await client.adopt_async(self.text, **self.options)
        return await client.lock(*self.resources, **self.options).acquire_async()

    @property
    def failures(self) -> tuple[type[quorlock.QuorlockError], ...]:
        """The errors that an acquire may have. A lease cannot be adopted if another one was
        faster, or if it has expired."""
        expected = (quorlock.LockTimeoutError, quorlock.QuorumError)
        return (*expected, quorlock.LeaseLostError) if self.text else expected

    def granted(self, lease: quorlock.Lease) -> None:
        look(
            "granted",
            lease,
            ask=self.ask,
            resources=self.resources,
            fences=lease.fences,
            shared=shared(lease),
            extended=self.extended,
            asked=self.asked,
            giver=self.giver,
        )

    def record(self, event: str, **entry: Any) -> None:
        record(event, ask=self.ask, at=time.monotonic_ns(), giver=self.giver, **entry)

    def request(self, lease: quorlock.Lease, op: str, resource: str, value: int) -> bytes:
        """Returns a request to the register."""
        request = {"op": op, "resource": resource, "client": settings["name"], "value": value}
        request |= {"fence": lease.fences[resource], "mode": lease.modes[resource]}
        return json.dumps(request).encode() + b"\n"

    def change(self, lease: quorlock.Lease) -> str | None:
        """Records how the holder changes the mode of its lease: `downgrade`, `upgrade` or None."""
        if random.random() >= settings["changing"]:
            return None
        what = "downgrade" if "exclusive" in lease.modes.values() else "upgrade"
        record(what, token=lease.token, at=time.monotonic_ns())
        if what == "upgrade":
            self.ask, self.asked, self.giver = next(asks), time.monotonic_ns(), None
            record("ask", ask=self.ask, resources=self.resources, wait=0, at=self.asked)
        return what

    def upgraded(
        self, lease: quorlock.Lease, new: quorlock.Lease | None, code: str = "TIMEOUT"
    ) -> None:
        """Records the result of an upgrade."""
        look("upgraded", lease, ok=new is not None)
        if new is None:
            self.record("error", code=code)
        else:
            self.granted(new)

    def offer(self, lease: quorlock.Lease, text: str) -> bytes:
        """Returns a request to the register that leaves a detached lease there."""
        offer = {"op": "offer", "client": settings["name"], "text": text, "giver": lease.token}
        offer |= {"resources": self.resources, "shared": shared(lease)}
        return json.dumps(offer).encode() + b"\n"

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


class PermitTurn(Turn):
    """One pass of a loop that acquires permits."""

    def __init__(self) -> None:
        self.resources, self.giver, self.text = [settings["pool"]], None, None
        self.extended = random.choice(settings["renewals"])
        self.permits: int = random.choice(settings["permits"])
        wait = random.choice(settings["waits"])
        self.semaphore: quorlock.Semaphore = client.semaphore(
            settings["pool"],
            limit=settings["limit"],
            permits=self.permits,
            wait=None if wait is None else wait / 1000,
            **renewal(self.extended),
        )
        self.begin(wait)

    def acquire(self) -> quorlock.Lease:
        return self.semaphore.acquire()

    async def acquire_async(self) -> quorlock.Lease:
        return await self.semaphore.acquire_async()

    def granted(self, lease: quorlock.Lease) -> None:
        fences = {f"{settings['pool']} {slot}": lease.fence for slot in lease.slots}
        look(
            "granted",
            lease,
            ask=self.ask,
            resources=list(fences),
            fences=fences,
            shared=[],
            extended=self.extended,
            asked=self.asked,
            permits=self.permits,
        )


def take() -> bytes | None:
    """Returns a request to the register for a detached lease, sometimes."""
    if random.random() < settings["adopting"]:
        return json.dumps({"op": "take", "client": settings["name"]}).encode() + b"\n"
    return None


def detaches(lease: quorlock.Lease) -> float | None:
    """Returns the time within which the lease is to be adopted, in seconds; None for a release."""
    if random.random() >= settings["detaching"]:
        return None
    within: int = random.choice(settings["withins"])
    record("detach", token=lease.token, at=time.monotonic_ns(), within=within)
    return within / 1000


def detached(lease: quorlock.Lease, ok: bool) -> None:
    record("detached", token=lease.token, at=time.monotonic_ns(), ok=ok)


FAILED_CHANGE = (quorlock.QuorumError, quorlock.LeaseLostError)


def work_in_thread() -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as reader:
        connection.connect(settings["register"])

        def send(
            turn: Turn, lease: quorlock.Lease, op: str, resource: str, value: int = 0
        ) -> int | None:
            connection.sendall(turn.request(lease, op, resource, value))
            return turn.parse_answer(lease, resource, reader.readline())

        def ask(request: bytes) -> Any:
            connection.sendall(request)
            return json.loads(reader.readline())

        def write(turn: Turn, lease: quorlock.Lease) -> None:
            values = {each: send(turn, lease, "read", each) for each in turn.resources}
            if None not in values.values():
                for step in turn.steps():
                    time.sleep(step / 1000)
                    look("look", lease)
            for resource, value in values.items():
                if value is not None and lease.modes[resource] == "exclusive":
                    send(turn, lease, "write", resource, value + 1)

        def change(turn: Turn, lease: quorlock.Lease) -> quorlock.Lease:
            """Changes the mode of the lease, sometimes. Returns the lease to go on with."""
            new = None
            match turn.change(lease):
                case "downgrade":
                    with suppress(quorlock.LeaseLostError):
                        lease.downgrade()
                        write(turn, lease)
                case "upgrade":
                    try:
                        new = lease.try_upgrade()
                        turn.upgraded(lease, new)
                    except FAILED_CHANGE as error:
                        turn.upgraded(lease, None, error.code)
            if new is not None:
                write(turn, new)
            return new or lease

        def hand_over(turn: Turn, lease: quorlock.Lease) -> bool:
            """Detaches the lease, sometimes. Returns whether it did."""
            within = detaches(lease)
            if within is None:
                return False
            try:
                text = lease.detach(within)
            except (quorlock.QuorumError, quorlock.LeaseLostError):
                detached(lease, False)
                return False
            detached(lease, True)
            ask(turn.offer(lease, text))
            return True

        while not over.is_set():
            request = take()
            turn = Turn(ask(request) if request else {})
            try:
                lease = turn.acquire()
            except turn.failures as error:
                turn.record("error", code=error.code)
            else:
                turn.granted(lease)
                write(turn, lease)
                lease = change(turn, lease)
                if not hand_over(turn, lease):
                    record("release", token=lease.token, at=time.monotonic_ns())
                    ok = lease.release()
                    record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
            time.sleep(random.choice(settings["pauses"]) / 1000)


def use_permits_in_thread() -> None:
    while not over.is_set():
        turn = PermitTurn()
        try:
            lease = turn.acquire()
        except turn.failures as error:
            turn.record("error", code=error.code)
        else:
            turn.granted(lease)
            for step in turn.steps():
                time.sleep(step / 1000)
                look("look", lease)
            record("release", token=lease.token, at=time.monotonic_ns())
            ok = lease.release()
            record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
        time.sleep(random.choice(settings["pauses"]) / 1000)


async def acquire(turn: Turn) -> quorlock.Lease | None:
    """Acquires a lease, and sometimes cancels the wait. Returns None if the wait was cancelled."""
    task = asyncio.ensure_future(turn.acquire_async())
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

    async def ask(request: bytes) -> Any:
        writer.write(request)
        return json.loads(await reader.readline())

    async def write(turn: Turn, lease: quorlock.Lease) -> None:
        values = {each: await send(turn, lease, "read", each) for each in turn.resources}
        if None not in values.values():
            for step in turn.steps():
                await asyncio.sleep(step / 1000)
                look("look", lease)
        for resource, value in values.items():
            if value is not None and lease.modes[resource] == "exclusive":
                await send(turn, lease, "write", resource, value + 1)

    async def change(turn: Turn, lease: quorlock.Lease) -> quorlock.Lease:
        """Changes the mode of the lease, sometimes. Returns the lease to go on with."""
        new = None
        match turn.change(lease):
            case "downgrade":
                with suppress(quorlock.LeaseLostError):
                    await lease.downgrade_async()
                    await write(turn, lease)
            case "upgrade":
                try:
                    new = await lease.try_upgrade_async()
                    turn.upgraded(lease, new)
                except FAILED_CHANGE as error:
                    turn.upgraded(lease, None, error.code)
        if new is not None:
            await write(turn, new)
        return new or lease

    async def hand_over(turn: Turn, lease: quorlock.Lease) -> bool:
        """Detaches the lease, sometimes. Returns whether it did."""
        within = detaches(lease)
        if within is None:
            return False
        try:
            text = await lease.detach_async(within)
        except (quorlock.QuorumError, quorlock.LeaseLostError):
            detached(lease, False)
            return False
        detached(lease, True)
        await ask(turn.offer(lease, text))
        return True

    while not over.is_set():
        request = take()
        turn = Turn(await ask(request) if request else {})
        try:
            lease = await acquire(turn)
        except turn.failures as error:
            turn.record("error", code=error.code)
            lease = None
        if lease is not None:
            turn.granted(lease)
            await write(turn, lease)
            lease = await change(turn, lease)
            if not await hand_over(turn, lease):
                record("release", token=lease.token, at=time.monotonic_ns())
                ok = await lease.release_async()
                record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
        await asyncio.sleep(random.choice(settings["pauses"]) / 1000)
    writer.close()


async def use_permits_in_task() -> None:
    while not over.is_set():
        turn = PermitTurn()
        try:
            lease = await acquire(turn)
        except turn.failures as error:
            turn.record("error", code=error.code)
            lease = None
        if lease is not None:
            turn.granted(lease)
            for step in turn.steps():
                await asyncio.sleep(step / 1000)
                look("look", lease)
            record("release", token=lease.token, at=time.monotonic_ns())
            ok = await lease.release_async()
            record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
        await asyncio.sleep(random.choice(settings["pauses"]) / 1000)


class Terms:
    """The terms of a leader: what it records, and when it hands over."""

    def __init__(self) -> None:
        self.election = client.elect(settings["leader"], holder=settings["name"])
        self.asked = time.monotonic_ns()
        self.ask: int | None = None

    def campaign(self) -> None:
        """Records the beginning of a campaign, unless it has begun."""
        if self.ask is None:
            self.ask = next(asks)
            resources = [settings["leader"]]
            record("ask", ask=self.ask, resources=resources, wait=None, at=self.asked)

    def begin(self, lease: quorlock.Lease) -> None:
        # After a loss, the campaign began without a call.
        self.campaign()
        fences = lease.fences
        look(
            "granted",
            lease,
            ask=self.ask,
            resources=list(fences),
            fences=fences,
            shared=[],
            extended=True,
            asked=self.asked,
        )

    def end(self) -> None:
        self.asked, self.ask = time.monotonic_ns(), None

    def steps(self) -> list[float]:
        """Splits a random pause into steps, in seconds."""
        think = random.choice(settings["thinks"])
        return [min(STEP, think - done) / 1000 for done in range(0, think, STEP)]

    def successor(self, lease: quorlock.Lease) -> str | None:
        """Returns the name of the client to hand over to; None to end the term."""
        if random.random() >= settings["handing"]:
            return None
        to: str = random.choice(settings["others"])
        record("hand", token=lease.token, at=time.monotonic_ns(), to=to)
        return to

    def handed(self, lease: quorlock.Lease, ok: bool) -> bool:
        """Records a hand-over. Returns whether the lease has ended."""
        look("handed", lease, ok=ok)
        return not lease.valid


HAND_OVER_ERRORS = (quorlock.LeaseLostError, quorlock.QuorumError)


def lead_in_thread() -> None:
    terms = Terms()

    def lead(lease: quorlock.Lease) -> None:
        terms.begin(lease)
        for step in terms.steps():
            time.sleep(step)
            look("look", lease)
        if to := terms.successor(lease):
            ok = False
            with suppress(*HAND_OVER_ERRORS):
                ok = lease.hand_over(to, within=settings["ttl"] / 1000)
            if terms.handed(lease, ok):
                return terms.end()
        record("release", token=lease.token, at=time.monotonic_ns())
        ok = lease.release()
        record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
        return terms.end()

    while not over.is_set():
        terms.campaign()
        terms.election.run(lead)


async def lead_in_task() -> None:
    terms = Terms()

    async def lead(lease: quorlock.Lease) -> None:
        terms.begin(lease)
        try:
            for step in terms.steps():
                await asyncio.sleep(step)
                look("look", lease)
            if to := terms.successor(lease):
                ok = False
                with suppress(*HAND_OVER_ERRORS):
                    ok = await lease.hand_over_async(to, within=settings["ttl"] / 1000)
                if terms.handed(lease, ok):
                    return
            record("release", token=lease.token, at=time.monotonic_ns())
            ok = await lease.release_async()
            record("released", token=lease.token, at=time.monotonic_ns(), ok=ok)
        finally:
            terms.end()

    while not over.is_set():
        terms.campaign()
        await terms.election.run_async(lead)


def observe() -> None:
    """Records each leader, until the client is closed."""
    with suppress(quorlock.ClosedError):
        for leader in client.watch(settings["leader"]):
            record(
                "observed",
                at=time.monotonic_ns(),
                process=os.getpid(),
                resource=settings["leader"],
                holder=leader.holder,
                fence=leader.fence,
            )


async def run_tasks() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(lead_in_task())
        for _ in range(settings["loops"]):
            group.create_task(work_in_task())
        for _ in range(settings["permit_loops"]):
            group.create_task(use_permits_in_task())


def run_threads() -> None:
    def fail(args: Any) -> None:
        traceback.print_exception(args.exc_value)
        os._exit(1)

    threading.excepthook = fail
    loops = [lead_in_thread, *[work_in_thread] * settings["loops"]]
    loops += [use_permits_in_thread] * settings["permit_loops"]
    threads = [threading.Thread(target=loop) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_for_the_end() -> None:
    os.read(0, 1)
    over.set()


ending = threading.Thread(target=wait_for_the_end, daemon=True)
ending.start()
threading.Thread(target=observe, daemon=True).start()
if settings["kind"] == "asyncio":
    asyncio.run(run_tasks())
else:
    run_threads()
client.close()
record("closed", at=time.monotonic_ns())
os.read(0, 1)
