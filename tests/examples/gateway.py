"""The HTTP service that the examples call while they hold a lock, such as a payment service.

It can delay its answers. It records all calls, and how many calls of an account overlapped.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Call:
    """One request."""

    path: str
    body: dict[str, Any]
    key: str
    """The Idempotency-Key header."""
    at: float = field(default_factory=time.monotonic)
    """When the request arrived."""
    state: str = "in progress"
    """`in progress`, then `answered`, or `aborted` if the caller disconnected first."""


@dataclass
class Gateway:
    """Answers every POST with `{}`. After `hold()`, answers are delayed until `release()`."""

    calls: list[Call] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    """The accounts with two calls at the same time. `key` stands in for a missing account."""
    most: Counter[str] = field(default_factory=Counter)
    """The largest number of calls of each account that were in progress at the same time."""

    def __post_init__(self) -> None:
        self._in_progress: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                gateway.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (inherited)
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def states(self) -> list[str]:
        return [call.state for call in self.calls]

    def in_progress(self, account: str) -> int:
        return self._in_progress[account]

    def hold(self) -> None:
        """Delays all answers from now on."""
        self._open.clear()

    def release(self) -> None:
        """Sends the delayed answers, and answers new calls immediately."""
        self._open.set()

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Serves one request, on its own thread."""
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        call = Call(request.path, body, request.headers["Idempotency-Key"])
        about = str(body.get("account", call.key))
        with self._lock:
            self.calls.append(call)
            self._in_progress[about] += 1
            self.most[about] = max(self.most[about], self._in_progress[about])
            if self._in_progress[about] > 1:
                self.overlaps.append(about)
        try:
            while not self._open.wait(0.005):
                if _is_closed(request.connection):
                    call.state = "aborted"
                    request.close_connection = True
                    return
        finally:
            with self._lock:
                self._in_progress[about] -= 1
        call.state = "answered"
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"{}")


def _is_closed(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        return True
