"""A TCP proxy in front of one Redis server that loses, holds and delays traffic on demand.

    with Proxy(server.port) as proxy:
        client = connect(proxy.url)
        proxy.mode = "drop_replies"

Modes, which can be changed at any time and apply to open connections and to new ones:

pass          Everything goes through.
drop_replies  Commands go through, replies are dropped. TCP never delivers a stream with a gap, so a
              connection that lost a reply is cut when this mode ends.
lose_reply    Once: the next reply to a command forwarded after the mode was set is lost, and its
              connection is closed on both sides. Then the mode is "pass" again. Replies to earlier
              commands are delivered. Pub/sub messages do not count as replies.
lose_command  Once: the next command is lost, and its connection is closed on both sides, as if the
              server had closed it before. Then the mode is "pass" again. Pub/sub commands do not
              count.
hold          Nothing goes through in either direction, including the end of a connection. The proxy
              keeps the traffic, and passes it on in order when the mode changes.
hold_commands, hold_replies
              The same in one direction only.
hold_open     The same as hold, but for the connections that are open only. New ones pass.
refuse        Open connections are cut, new ones are closed at once.

The new mode is in effect when the setter of `mode` returns. `cut()` cuts the open connections in
any mode. The proxy passes on whole messages only, so it must understand the traffic: plain RESP2 or
RESP3, no TLS.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self, cast, get_args
from urllib.parse import quote

Mode = Literal[
    "pass",
    "drop_replies",
    "lose_reply",
    "lose_command",
    "hold",
    "hold_commands",
    "hold_replies",
    "hold_open",
    "refuse",
]

# Pub/sub commands, which can have any number of replies, and pub/sub messages, which are not
# replies to a command.
_PUBSUB = frozenset(
    b"SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE"
    b" MESSAGE PMESSAGE SMESSAGE".split()
)


def redis_url(port: int, password: str | None = None, host: str = "127.0.0.1") -> str:
    """The URL of a server on this machine."""
    credentials = "" if password is None else f":{quote(password, safe='')}@"
    return f"redis://{credentials}{host}:{port}"


class Proxy:
    """A proxy on a free port, in a thread of its own, until `close()` or the end of `with`."""

    def __init__(
        self, target_port: int, password: str | None = None, host: str = "127.0.0.1"
    ) -> None:
        """`password` is used only in `url`. `host` is the address on which the proxy listens."""
        self.target_port = target_port
        self.delay = 0.0
        """Seconds by which each reply is delayed. The delays of several replies do not add up."""
        self._mode: Mode = "pass"
        self._links: set[_Link] = set()
        self._listener = socket.create_server((host, 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = redis_url(self.port, password, host)
        self._loop = asyncio.SelectorEventLoop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def mode(self) -> Mode:
        """What happens to the traffic. The docstring of this module describes the modes."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"unknown proxy mode {mode!r}, expected one of {get_args(Mode)}")
        self._run_in_thread(self._switch(mode))

    def cut(self) -> None:
        """Close the connections that are open now, on both sides. New ones are accepted."""
        self._run_in_thread(self._cut())

    @property
    def connections(self) -> int:
        """The number of open client connections: closed neither by the client nor by the proxy."""
        return sum(not link.client.ended for link in tuple(self._links))

    def close(self) -> None:
        """Cut all connections and end the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run_in_thread(self, change: Coroutine[None, None, None]) -> None:
        if not self._thread.is_alive():
            change.close()
            raise RuntimeError("the proxy is closed")
        asyncio.run_coroutine_threadsafe(change, self._loop).result()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_server(lambda: _Link(self).client, sock=self._listener)
        await self._stop.wait()
        server.close()
        for link in tuple(self._links):
            link.cut(at_once=True)
        await asyncio.sleep(0)  # one turn of the loop, in which the transports close their sockets

    async def _switch(self, mode: Mode) -> None:
        self._mode = mode
        for link in tuple(self._links):
            link.mode_changed()

    async def _cut(self) -> None:
        for link in tuple(self._links):
            link.cut()


class _Link:
    """One client connection and the server connection that belongs to it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._loop = proxy._loop
        self.client = _Side(self)
        self._server = _Side(self)
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._unanswered = 0  # forwarded commands whose reply has not been passed on
        self._spared = 0  # how many of these were forwarded before the mode was set
        self._has_gap = False  # a reply was dropped
        self._is_held = False  # it was open when the mode became "hold_open"

    def opened(self, side: _Side) -> None:
        if side is self.client:
            self._proxy._links.add(self)
            self._connecting = self._loop.create_task(self._connect())
        if self._closed or self._proxy.mode == "refuse":
            self.cut()
        else:
            self.flush()

    async def _connect(self) -> None:
        try:
            await self._loop.create_connection(
                lambda: self._server, "127.0.0.1", self._proxy.target_port
            )
        except OSError:
            self._server.end()

    def due(self, side: _Side) -> float:
        """Returns the loop time at which to pass on a message that arrives on this side now."""
        return self._loop.time() + self._proxy.delay if side is self._server else 0.0

    def mode_changed(self) -> None:
        mode = self._proxy.mode
        if mode == "refuse" or (self._has_gap and mode != "drop_replies"):
            self.cut()
        else:
            self._spared = self._unanswered
            self._is_held = mode == "hold_open"
            self.flush()

    def flush(self) -> None:
        """Pass on all messages whose delay is over and that the mode does not hold."""
        if self._closed or self._is_held:
            return
        commands_pass = self._proxy.mode not in ("hold", "hold_commands")
        replies_pass = self._proxy.mode not in ("hold", "hold_replies")
        while commands_pass and self._server.transport is not None and self.client.inbox:
            self._pass_up(self.client.inbox.popleft()[1])
            if self._closed:
                return
        while replies_pass and self._server.inbox and not self._closed:
            due = self._server.inbox[0][0]
            if due > self._loop.time():
                self._loop.call_at(due, self.flush)
                break
            self._pass_down(self._server.inbox.popleft()[1])

    def _pass_up(self, message: bytes) -> None:
        if not message:
            self._server.send_end()
            return
        if self._proxy.mode == "lose_command" and _counts(message):
            self._proxy._mode = "pass"
            self.cut()
            return
        self._server.send(message)
        self._unanswered += _counts(message)

    def _pass_down(self, message: bytes) -> None:
        if not message:
            self.cut()
            return
        answers = _counts(message) and self._unanswered > 0
        self._unanswered -= answers
        if self._proxy.mode == "drop_replies":
            self._has_gap = True
        elif self._proxy.mode == "lose_reply" and answers and not self._spared:
            self._proxy._mode = "pass"
            self.cut()
        else:
            self._spared -= answers and self._spared > 0
            self.client.send(message)

    def cut(self, at_once: bool = False) -> None:
        """Close both connections. Data already passed on is still sent, unless `at_once`."""
        self._closed = True
        self._proxy._links.discard(self)
        if self._connecting is not None and at_once:
            self._connecting.cancel()
        for side in (self.client, self._server):
            if side.transport is not None:
                side.send_end()
                side.transport.close()
                if at_once:
                    side.transport.abort()


def _keep_alive(connection: socket.socket) -> None:
    """Makes the kernel detect within seconds that the peer is gone, even if its FIN was lost."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 10)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class _Side(asyncio.Protocol):
    """One end of a link: collects the messages that arrive there in `inbox`."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._partial = b""
        self.transport: asyncio.Transport | None = None
        self.inbox: deque[tuple[float, bytes]] = deque()
        """Messages, each with the loop time at which to pass it on. An empty message marks the end
        of the stream."""
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        _keep_alive(transport.get_extra_info("socket"))
        self._link.opened(self)

    def data_received(self, data: bytes) -> None:
        self._partial += data
        start = 0
        while (end := _message_end(self._partial, start)) is not None:
            self.inbox.append((self._link.due(self), self._partial[start:end]))
            start = end
        self._partial = self._partial[start:]
        self._link.flush()

    def eof_received(self) -> bool:
        self.end()
        return True  # the other direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.inbox.append((self._link.due(self), b""))
            self._link.flush()

    def send(self, message: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(message)

    def send_end(self) -> None:
        """Shuts the stream down, which ends it even if a forked child has a copy of the socket."""
        with suppress(OSError):  # the peer has already closed the connection
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write_eof()


def _message_end(data: bytes, start: int) -> int | None:
    """Returns the index after the RESP message that begins at `start`; None if it is incomplete."""
    newline = data.find(b"\r\n", start)
    if newline < 0:
        return None
    kind, size, end = data[start : start + 1], data[start + 1 : newline], newline + 2
    if kind in (b"$", b"=", b"!"):
        end += int(size) + 2 if int(size) >= 0 else 0
        return end if end <= len(data) else None
    parts = 0
    if kind in (b"*", b"~", b">"):
        parts = int(size)
    elif kind in (b"%", b"|"):
        parts = 2 * int(size) + (kind == b"|")  # an attribute precedes the actual message
    for _ in range(parts):
        inner = _message_end(data, end)
        if inner is None:
            return None
        end = inner
    return end


def _counts(message: bytes) -> bool:
    """Returns whether this is a command with exactly one reply, or the reply to such a command."""
    if message.startswith(b">"):
        return False
    lines = message.split(b"\r\n", 3)
    return not (message.startswith(b"*") and len(lines) > 2 and lines[2].upper() in _PUBSUB)
