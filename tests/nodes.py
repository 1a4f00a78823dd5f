"""Reads and changes the state of all nodes at once. Used by the tests of all suites."""

from __future__ import annotations

from collections.abc import Iterable

from servers import Reply, Server, Servers


def keys(servers: Servers) -> list[object]:
    """Returns the keys on all nodes, except fence counters and the indexes of semaphores, which
    expire later. A key is listed once for each node."""
    found: list[object] = []
    for server in servers:
        reply = server.command("KEYS", "*")
        assert isinstance(reply, list)
        found += [key for key in reply if not str(key).endswith((":fence", ":permits"))]
    return found


def is_free(servers: Servers, key: str) -> bool:
    """Returns whether no node has the key."""
    return all(server.command("EXISTS", key) == 0 for server in servers)


def is_everywhere(servers: Servers, key: str, value: object) -> bool:
    """Returns whether all nodes have the value. Wait for it: a lock needs only a majority."""
    return all(server.command("GET", key) == value for server in servers)


def steal(servers: Servers, key: str) -> None:
    """Replaces the value of the key with another token, on all nodes."""
    for server in servers:
        server.command("SET", key, "thief")


def freeze(servers: Servers) -> None:
    """Freezes all nodes, so that none answers."""
    for server in servers:
        server.freeze()


def thaw(servers: Servers) -> None:
    """Resumes all nodes. They answer the requests that arrived in the meantime."""
    for server in servers:
        server.thaw()


def scripts(server: Server) -> int:
    """Returns the number of scripts that the node has run."""
    stats = str(server.command("INFO", "commandstats"))
    return int(stats.split("cmdstat_evalsha:calls=")[1].split(",")[0])


def queued(nodes: Iterable[Server]) -> list[Reply]:
    """Returns the number of waiters in each node's queue for the resource "r"."""
    return [node.command("ZCARD", "{r}:queue") for node in nodes]


def listening(nodes: Iterable[Server]) -> list[int]:
    """Returns the number of connections to each node that are subscribed to notifications."""
    lists = [str(node.command("CLIENT", "LIST", "TYPE", "pubsub")) for node in nodes]
    return [clients.count(" addr=") for clients in lists]


def listeners(servers: Servers, resource: str, name: str) -> list[int]:
    """Returns the number of candidates for the leader of a resource that listen on each node."""
    channel = f"quorlock:candidate:{len(resource)}:{resource}:{name}"
    counts = []
    for server in servers:
        reply = server.command("PUBSUB", "NUMSUB", channel)
        assert isinstance(reply, list)
        counts.append(int(str(reply[1])))
    return counts
