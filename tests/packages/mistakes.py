"""Common mistakes of users, and the texts that the error messages must contain."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from servers import Servers


class Mistake(NamedTuple):
    """Code with the same mistake in both languages, and parts of the expected error message."""

    python: str
    javascript: str
    expected: list[str]


MISTAKES = {
    "wrong scheme": Mistake(
        'Client(["http://10.0.0.1"])',
        'new Client(["http://10.0.0.1"])',
        ["ConfigError", "node 1 (http://10.0.0.1)", "must be redis://"],
    ),
    "no scheme": Mistake(
        'Client(["localhost:6379"])',
        'new Client(["localhost:6379"])',
        ["ConfigError", "node 1 (localhost:6379)", "a URL that begins with redis://"],
    ),
    "no nodes": Mistake(
        "Client()",
        "new Client()",
        ["ConfigError", "of 1 to 32 URLs, and none are given", "QUORLOCK_NODES"],
    ),
    "milliseconds and seconds": Mistake(
        'Client(["redis://10.0.0.1"], ttl=0.005)',
        'new Client(["redis://10.0.0.1"], { ttl: 5 })',
        ["ConfigError", "ttl must be a duration from 10 ms to 24 h, not"],
    ),
    "misspelt": Mistake(
        'Client(["redis://10.0.0.1"], tll=5)',
        'new Client(["redis://10.0.0.1"], { tll: 5 })',
        ["ConfigError", "tll is not an option here; it can be ttl, wait"],
    ),
    "no server": Mistake(
        'Client(["redis://127.0.0.1:1"])',
        'new Client(["redis://127.0.0.1:1"])',
        ["QuorumError", "redis://127.0.0.1:1", "unreachable", "see that the server runs"],
    ),
    "no password": Mistake(
        'Client(["redis://HOST"])',
        'new Client(["redis://HOST"])',
        ["QuorumError", "refused", "the URL must have the password"],
    ),
    "wrong password": Mistake(
        'Client(["redis://:marker@HOST"])',
        'new Client(["redis://:marker@HOST"])',
        ["QuorumError", "refused", "see that the user and the password in the URL are right"],
    ),
}


def with_server(client: str, start_servers: Callable[..., Servers]) -> str:
    """Replaces HOST in the code with the address of a server that requires a password."""
    if "HOST" not in client:
        return client
    [server] = start_servers(1, password="right")
    return client.replace("HOST", f"127.0.0.1:{server.port}")


def check(message: str, mistake: Mistake) -> None:
    """Asserts that the error message has all expected parts, and not the password."""
    for part in mistake.expected:
        assert part in message
    assert "marker" not in message
