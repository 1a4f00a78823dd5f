"""The protected register: what the locks of the chaos run protect.

A number for each resource, in this process, so that it outlives every client. It applies fences as
any storage behind a lock should: reading and writing both say the fence of the lease, and one that
is smaller than the largest seen is refused. One JSON object per line, over a Unix socket, which no
fault of a network can touch:

    {"op": "read", "resource": "stock", "client": "Rust 1", "fence": 7}  {"ok": true, "value": 3}
    {"op": "write", ..., "fence": 7, "value": 4}                         {"ok": true, "value": 4}
    {"op": "write", ..., "fence": 6, "value": 4}                         {"ok": false}

What it accepted and refused goes to its history, with the time in nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Register:
    """A server in a thread of its own, until the end of `with`."""

    def __init__(self, history: Path) -> None:
        self._values: dict[str, int] = {}
        self._fences: dict[str, int] = {}
        self._history = history.open("a")
        # The path of a socket must be short, which that of a test's folder is not.
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
                writer.write(json.dumps(self.answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        writer.close()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the register does with a request: everything in one step."""
        resource, fence = request["resource"], request["fence"]
        accepted = fence >= self._fences.get(resource, 0)
        value = self._values.get(resource, 0) if request["op"] == "read" else request["value"]
        if accepted:
            self._fences[resource] = fence
            self._values[resource] = value
        entry = {"event": request["op"], "resource": resource, "client": request["client"]}
        entry |= {"fence": fence, "value": value, "at": time.monotonic_ns(), "ok": accepted}
        self._history.write(json.dumps(entry) + "\n")
        return {"ok": True, "value": value} if accepted else {"ok": False}
