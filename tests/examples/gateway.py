"""What the examples call while they hold a lock: a payment or mail service, over HTTP.

It is as slow as the test wants, and remembers who called it, and how many did at once.
"""

from __future__ import annotations

import json
import select
import socket
import threading
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
    """Its Idempotency-Key."""
    state: str = "under way"
    """Then `answered`, or `aborted` if the caller hung up first."""


@dataclass
class Gateway:
    """Answers every POST with `{}`: at once, or after `hold()` only when `release()` is called."""

    calls: list[Call] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    """Accounts (or keys, of calls without one) with two calls under way at once."""

    def __post_init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                gateway.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
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

    def hold(self) -> None:
        """Lets callers wait from now on."""
        self._open.clear()

    def release(self) -> None:
        """Answers those who wait, and those who come."""
        self._open.set()

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Serves one request, on a thread of its own."""
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        call = Call(request.path, body, request.headers["Idempotency-Key"])
        about = str(body.get("account", call.key))
        with self._lock:
            self.calls.append(call)
            self._under_way[about] += 1
            if self._under_way[about] > 1:
                self.overlaps.append(about)
        try:
            while not self._open.wait(0.005):
                if _is_closed(request.connection):
                    call.state = "aborted"
                    request.close_connection = True
                    return
        finally:
            with self._lock:
                self._under_way[about] -= 1
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
