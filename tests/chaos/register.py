"""The register that the locks of the chaos run protect.

It holds a number for each resource. It runs in the process of the run, so it outlives every client.
It checks fences as any storage behind a lock should: reads and writes carry the fence of the lease.
One under an exclusive lease is refused if its fence is smaller than the largest one seen, and one
under a shared lease if it is smaller than the largest one of an exclusive lease. The protocol is
one JSON object per line, over a Unix socket, which network faults cannot affect:

    {"op": "read", "resource": "stock", "client": "Rust 1", "fence": 7,
     "mode": "exclusive"}                                                {"ok": true, "value": 3}
    {"op": "write", ..., "fence": 7, "value": 4}                         {"ok": true, "value": 4}
    {"op": "write", ..., "fence": 6, "value": 4}                         {"ok": false}

It is also the desk over which clients hand leases over. A client leaves the text of a detached
lease, and a client in another language takes it. Some texts are given to two clients:

    {"op": "offer", "client": "Rust 1", "text": ..., "giver": TOKEN,
     "resources": ["stock"], "shared": []}                         {"ok": true}
    {"op": "take", "client": "Node.js 2"}                          {"ok": true, "text": ..., ...}
    {"op": "take", "client": "Node.js 2"}                          {"ok": false}

The history contains all accepted and refused reads and writes, with times in nanoseconds of
CLOCK_MONOTONIC.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.history import language

TWICE = 0.2
"""The probability that a text is given to two clients."""


class Register:
    """A server in its own thread. It is stopped at the end of `with`."""

    def __init__(self, history: Path) -> None:
        self._values: dict[str, int] = {}
        self._fences: dict[str, int] = {}
        self._exclusive: dict[str, int] = {}
        self._offers: list[dict[str, Any]] = []
        self._history = history.open("a")
        # The path of a Unix socket must be short, and the path of a test's folder is too long.
        self._folder = tempfile.TemporaryDirectory(prefix="quorlock-")
        self.path = f"{self._folder.name}/register"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="register", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._history.close()
        self._folder.cleanup()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        async with await asyncio.start_unix_server(self._serve, sock=self._listener):
            await self._stop.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the client was killed
            while (line := await reader.readline()).endswith(b"\n"):
                request = json.loads(line)
                answer = self.hand if request["op"] in ("offer", "take") else self.answer
                writer.write(json.dumps(answer(request)).encode() + b"\n")
                await writer.drain()
        writer.close()

    def hand(self, request: dict[str, Any]) -> dict[str, Any]:
        """Keeps an offer, or returns the oldest one of a client in another language."""
        if request["op"] == "offer":
            self._offers.append(request)
            return {"ok": True}
        for offer in self._offers:
            if language(offer["client"]) != language(request["client"]):
                if random.random() < TWICE and "again" not in offer:
                    offer["again"] = True
                else:
                    self._offers.remove(offer)
                given = {key: offer[key] for key in ("text", "giver", "resources")}
                return {"ok": True, "shared": offer.get("shared", [])} | given
        return {"ok": False}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Checks, executes and records a request in one step, and returns the answer."""
        resource, fence = request["resource"], request["fence"]
        is_shared = request["mode"] == "shared"
        least = (self._exclusive if is_shared else self._fences).get(resource, 0)
        accepted = fence >= least
        value = self._values.get(resource, 0) if request["op"] == "read" else request["value"]
        if accepted:
            self._fences[resource] = max(fence, self._fences.get(resource, 0))
            if not is_shared:
                self._exclusive[resource] = fence
            self._values[resource] = value
        entry = {"event": request["op"], "resource": resource, "client": request["client"]}
        entry |= {"fence": fence, "value": value, "at": time.monotonic_ns(), "ok": accepted}
        self._history.write(json.dumps(entry) + "\n")
        return {"ok": True, "value": value} if accepted else {"ok": False}
