"""A minimal RESP2 client: encodes one command and reads its reply."""

from __future__ import annotations

from typing import BinaryIO, TypeAlias

Reply: TypeAlias = "str | int | list[Reply] | None"
Argument: TypeAlias = str | bytes | int | float


class ServerReplyError(Exception):
    """The server answered a command with an error."""


def encode_command(*args: Argument) -> bytes:
    """Encodes a command as a RESP array."""
    parts = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"".join(
        [b"*%d\r\n" % len(parts), *(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)]
    )


def read_reply(reader: BinaryIO) -> Reply:
    """Reads a RESP2 reply. Raises ServerReplyError for an error reply, ConnectionError at EOF."""
    line = reader.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, rest = line[:1], line[1:-2].decode(errors="backslashreplace")
    if kind == b"-":
        raise ServerReplyError(rest)
    if kind == b"+":
        return rest
    size = int(rest)
    if kind == b":":
        return size
    if size < 0:
        return None
    if kind == b"*":
        return [read_reply(reader) for _ in range(size)]
    data = reader.read(size + 2)
    if len(data) < size + 2:
        raise ConnectionError("the server closed the connection")
    return data[:-2].decode(errors="backslashreplace")
