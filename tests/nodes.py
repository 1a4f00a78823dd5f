"""What the tests look for on the nodes, and do to them."""

from __future__ import annotations

from servers import Servers


def keys(servers: Servers) -> list[object]:
    """The keys on all nodes that are no fences."""
    found: list[object] = []
    for server in servers:
        reply = server.command("KEYS", "*")
        assert isinstance(reply, list)
        found += [key for key in reply if not str(key).endswith(":fence")]
    return found


def is_free(servers: Servers, key: str) -> bool:
    """Whether no node has the key."""
    return all(server.command("EXISTS", key) == 0 for server in servers)


def steal(servers: Servers, key: str) -> None:
    """Puts another holder's token in place of the key, on all nodes."""
    for server in servers:
        server.command("SET", key, "thief")


def freeze(servers: Servers) -> None:
    """No node answers any more."""
    for server in servers:
        server.freeze()


def thaw(servers: Servers) -> None:
    """All nodes go on, and answer what they were asked meanwhile."""
    for server in servers:
        server.thaw()
