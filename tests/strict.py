"""A strict server: it refuses a script that accesses a key that the script has not declared.

    with closing(Strict(server)) as strict:
        client = connect(strict.url)
        ...
        assert strict.refused() == []

Some servers are strict by default. Redis is not, so this is a proxy in front of a real server. The
access control of the real server enforces the rule: each client connection has a server user of its
own, and before the proxy forwards a script, it limits this user to the keys that the script
declares. Scripts may not use SCAN either, because it finds any key. Other commands may access all
keys.

A script that ignores errors hides that it was refused, so check `refused()` as well.

The proxy answers the commands of a connection one after the other. After a subscription, it relays
everything in both directions. It understands RESP2 and RESP3, without TLS and passwords.
"""

from __future__ import annotations

import io
import itertools
import re
import socket
import socketserver
import threading
from collections.abc import Sequence
from contextlib import closing, suppress

from proxy import redis_url
from servers import Argument, Server, encode_command, read_reply

MOST_KEYS = 100
"""A script that declares more keys may access all keys: a server compares each key that is declared
with each key that is permitted."""

_SUBSCRIPTIONS = ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")


class Strict:
    """A strict server on a free port, until `close()`."""

    def __init__(self, server: Server) -> None:
        """`server` is the real server, which must outlive this one."""
        self._server = server
        self._listener = _Listener(server.port)
        self.port: int = self._listener.server_address[1]
        self.url = redis_url(self.port)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name=f"strict-{self.port}"
        )
        self._thread.start()

    def refused(self) -> list[str]:
        """Returns what scripts were refused since the server started: keys, or commands."""
        log = self._server.command("ACL", "LOG")
        assert isinstance(log, list)
        return [str(entry[entry.index("object") + 1]) for entry in log if isinstance(entry, list)]

    def close(self) -> None:
        """Accept no more connections. Open ones end with the server or the client."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target_port = target_port
        self.numbers = itertools.count(1)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: the real server is down, or a peer has closed its connection."""


class _Connection(socketserver.StreamRequestHandler):
    """One client connection, and its two connections to the real server: as the client's user, and
    as the administrator who changes this user."""

    disable_nagle_algorithm = True
    server: _Listener

    def handle(self) -> None:
        user = f"strict-{next(self.server.numbers)}"
        port = self.server.target_port
        with closing(_Upstream(port)) as admin, closing(_Upstream(port)) as own:
            admin.call("ACL", "SETUSER", user, "on", "nopass", "+@all", "allchannels", "allkeys")
            own.call("AUTH", user, "")
            current = rules([])
            while message := read_message(self.rfile):
                command = read_reply(io.BytesIO(message))
                assert isinstance(command, list)
                words = [str(word) for word in command]
                if rules(words) != current:
                    current = rules(words)
                    admin.call("ACL", "SETUSER", user, *current)
                if words[0].upper() in _SUBSCRIPTIONS:
                    self._relay(own, message)
                    return
                own.connection.sendall(message)
                self.wfile.write(read_message(own.reader))

    def _relay(self, own: _Upstream, subscription: bytes) -> None:
        """Passes everything on, in both directions, until one of them ends."""
        answers = threading.Thread(target=self._relay_down, args=(own,), daemon=True)
        answers.start()
        own.connection.sendall(subscription)
        while message := read_message(self.rfile):
            own.connection.sendall(message)
        own.connection.shutdown(socket.SHUT_RDWR)
        answers.join()

    def _relay_down(self, own: _Upstream) -> None:
        with suppress(OSError):
            while message := read_message(own.reader):
                self.wfile.write(message)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _Upstream:
    """A connection to the real server."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.connection.makefile("rb")

    def call(self, *command: Argument) -> None:
        """Runs a command. Raises ServerReplyError if it fails."""
        self.connection.sendall(encode_command(*command))
        read_reply(self.reader)

    def close(self) -> None:
        self.reader.close()
        self.connection.close()


def rules(words: Sequence[str]) -> list[str]:
    """Returns the changes of a user that permit a command to access what it declares."""
    if not (words and words[0].upper().startswith("EVAL")):
        return ["+scan", "allkeys"]
    keys = words[3 : 3 + int(words[2])]
    allowed = ["allkeys"] if len(keys) > MOST_KEYS else [f"~{_pattern(key)}" for key in keys]
    return ["-scan", "resetkeys", *allowed]


def _pattern(key: str) -> str:
    """Returns a pattern that matches the key. A pattern cannot contain a space, so `?` is used."""
    return re.sub(r"\s", "?", re.sub(r"[\\*?\[\]]", r"\\\g<0>", key))


def read_message(reader: io.BufferedIOBase) -> bytes:
    """Reads one RESP2 or RESP3 message, as it is. Returns nothing at the end of the stream."""
    line = reader.readline()
    kind, size = line[:1], line[1:-2]
    if kind in (b"$", b"=", b"!") and size != b"-1":
        return line + reader.read(int(size) + 2)
    parts = 0
    if kind in (b"*", b"~", b">"):
        parts = int(size)
    elif kind in (b"%", b"|"):
        parts = 2 * int(size) + (kind == b"|")  # an attribute precedes the actual message
    return line + b"".join(read_message(reader) for _ in range(parts))
