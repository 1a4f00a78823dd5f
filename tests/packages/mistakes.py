"""The mistakes that everybody makes once, and what the errors have to say about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from servers import Servers


class Mistake(NamedTuple):
    """How a client is made by mistake, and what the error says then."""

    python: str
    javascript: str
    says: list[str]


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
        ["ConfigError", "nodes must be a list of 1 to 32 URLs", "QUORLOCK_NODES"],
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
        ["QuorumError", "redis://127.0.0.1:1: unreachable", "see that the server runs"],
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


def made(client: str, start_servers: Callable[..., Servers]) -> str:
    """The mistake, with a server that asks for a password where one is named."""
    if "HOST" not in client:
        return client
    [server] = start_servers(1, password="right")
    return client.replace("HOST", f"127.0.0.1:{server.port}")


def check(said: str, mistake: Mistake) -> None:
    """The error says what it has to, and never the password."""
    for part in mistake.says:
        assert part in said
    assert "marker" not in said
