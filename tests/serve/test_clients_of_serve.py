"""The same requests to `quorlock serve` through the Redis libraries of several languages."""

from __future__ import annotations

import itertools
import json

from daemons import Daemon
from nodes import is_everywhere, is_free, steal
from serve.clients import LIBRARIES, Client, Library
from serve.conftest import Connect, need
from servers import Servers
from waiting import wait_until

LONG: list[str | int] = ["TTL", 60_000]


def lock(client: Client, *words: str | int) -> tuple[str, int]:
    """Sends LOCK, and returns the id and the fence of the lease."""
    lease, fence, valid = client.ask("LOCK", *words)
    assert isinstance(lease, str)
    assert isinstance(fence, int)
    assert valid > 0
    return lease, fence


def test_a_lock_is_acquired_checked_and_released(
    client: Client, resource: str, servers: Servers
) -> None:
    lease, fence, valid = client.ask("LOCK", resource, "TTL", 30_000)
    assert 0 < client.ask("CHECK", lease) <= valid <= 30_000
    wait_until(lambda: is_everywhere(servers, f"{{{resource}}}:fence", str(fence)))
    assert client.ask("UNLOCK", lease) == 1
    wait_until(lambda: is_free(servers, resource))
    # A release that is repeated finds nothing.
    assert client.ask("UNLOCK", lease) == 0
    assert client.error("CHECK", lease).startswith("LEASELOST ")


def test_fences_grow(connect: Connect, resource: str) -> None:
    clients = [connect(), connect()]
    fences = []
    for client in itertools.islice(itertools.cycle(clients), 6):
        lease, fence = lock(client, resource)
        fences.append(fence)
        assert client.ask("UNLOCK", lease) == 1
    assert fences == sorted(set(fences))


def test_a_lock_that_is_held_is_refused(connect: Connect, resource: str) -> None:
    holder, other = connect(), connect()
    lease, _ = lock(holder, resource)
    error = other.error("LOCK", resource, "WAIT", 0)
    assert error.startswith("TIMEOUT ")
    assert resource in error
    assert holder.ask("UNLOCK", lease) == 1
    lock(other, resource, "WAIT", 0)


def test_a_waiter_gets_a_lock_that_is_released(
    connect: Connect, resource: str, daemon: Daemon
) -> None:
    holder, other = connect(), connect()
    lease, fence = lock(holder, resource, *LONG)
    other.send("LOCK", resource, "WAIT", "FOREVER")
    daemon.wait_until_waiting()
    assert holder.ask("UNLOCK", lease) == 1
    assert other.reply()[1] > fence


def test_several_resources_are_locked_together(connect: Connect, resource: str) -> None:
    client, other = connect(), connect()
    # Neither a space nor the name of an option is special in a name.
    names = [resource, f"{resource} of Zoë", "TTL"]
    lease, _ = lock(client, "RESOURCES", 3, *names)
    for name in names:
        assert other.error("LOCK", "RESOURCES", 1, name, "WAIT", 0).startswith("TIMEOUT ")
    (shown,) = json.loads(client.ask("STATUS", names[1]))
    assert shown["resource"] == names[1]
    assert client.ask("UNLOCK", lease) == 1
    lock(other, *names[:2], "WAIT", 0)


def test_shared_locks_exclude_exclusive_ones(connect: Connect, resource: str) -> None:
    client, other, writer = connect(), connect(), connect()
    lease, _ = lock(client, resource, "MODE", "shared")
    second, _ = lock(other, resource, "MODE", "shared", "WAIT", 0)
    for reader, held in [(client, lease), (other, second)]:
        assert writer.error("LOCK", resource, "WAIT", 0).startswith("TIMEOUT ")
        assert reader.ask("UNLOCK", held) == 1
    lock(writer, resource)
    assert client.error("LOCK", resource, "MODE", "shared", "WAIT", 0).startswith("TIMEOUT ")


def test_permits_have_slots(connect: Connect, resource: str) -> None:
    client, other = connect(), connect()
    lease, _, valid, slots = client.ask("LOCK", resource, "LIMIT", 3, "PERMITS", 2)
    assert valid > 0
    *_, more = other.ask("LOCK", resource, "LIMIT", 3, "WAIT", 0)
    assert (len(slots), sorted(slots + more)) == (2, [0, 1, 2])
    assert other.error("LOCK", resource, "LIMIT", 3, "WAIT", 0).startswith("TIMEOUT ")
    assert client.ask("UNLOCK", lease) == 1
    *_, again = other.ask("LOCK", resource, "LIMIT", 3, "PERMITS", 2, "WAIT", 0)
    assert sorted(again) == sorted(slots)


def test_a_lease_is_extended(client: Client, resource: str) -> None:
    lease, _ = lock(client, resource, "TTL", 30_000)
    valid = client.ask("EXTEND", lease, "TTL", 60_000)
    assert 30_000 < valid <= 60_000
    assert 30_000 < client.ask("CHECK", lease) <= valid


def test_a_lease_of_another_connection_is_refused(connect: Connect, resource: str) -> None:
    client, other = connect(), connect()
    lease, _ = lock(client, resource, *LONG)
    for command in ("CHECK", "EXTEND", "DETACH", "UNLOCK"):
        error = other.error(command, lease)
        assert error.startswith(f"lease {lease} belongs to another connection")
    assert client.ask("UNLOCK", lease) == 1


def test_mistakes_are_errors(client: Client, resource: str) -> None:
    for words, expected in {
        ("LOCK", resource, "TTL", "5"): "CONFIG TTL ",
        ("LOCK", resource, "WAIT", "-1"): "CONFIG WAIT ",
        ("LOCK", resource, "MODE", "write"): "CONFIG MODE ",
        ("LOCK", resource, "PERMITS", "1"): "CONFIG PERMITS needs LIMIT",
        ("LOCK", resource, resource): "CONFIG the resource ",
        ("LOCK", ""): "CONFIG the resource ",
        ("ADOPT", "nonsense"): "CONFIG ",
        ("LOCK",): "wrong number of arguments for 'lock'",
        ("GET", resource): "unknown command",
    }.items():
        assert client.error(*words).startswith(expected), words
    # The connection is as good as before.
    lease, _ = lock(client, resource)
    assert client.error("CHECK", f"{lease}9") == f"there is no lease {lease}9"
    assert client.ask("UNLOCK", lease) == 1


def test_a_lost_lease_is_reported(connect: Connect, resource: str, servers: Servers) -> None:
    client, other = connect(), connect()
    lease, _ = lock(client, resource, "TTL", 1000)
    other.send("LOST", lease)
    steal(servers, resource)
    assert other.reply().startswith("LEASELOST ")
    # No push message came unasked, which some libraries would take for a reply.
    assert client.ask("ECHO", "x") == "x"
    assert client.error("CHECK", lease).startswith("LEASELOST ")
    assert client.ask("UNLOCK", lease) == 0


def test_a_killed_client_frees_its_locks(connect: Connect, resource: str, daemon: Daemon) -> None:
    holder, waiter = connect(), connect()
    _, fence = lock(holder, resource, *LONG)
    waiter.send("LOCK", resource, "WAIT", 30_000)
    daemon.wait_until_waiting()
    holder.kill()
    # Long before the ttl of the holder.
    assert waiter.reply()[1] > fence


def test_a_lease_is_adopted_in_another_language(
    connect: Connect, library: Library, resource: str
) -> None:
    adopter = need(LIBRARIES[(LIBRARIES.index(library) + 1) % len(LIBRARIES)])
    client, other = connect(), connect(adopter)
    lease, fence = lock(client, resource, *LONG)
    text = client.ask("DETACH", lease, "WITHIN", 30_000)
    assert client.error("CHECK", lease).startswith("LEASELOST ")
    assert client.error("LOCK", resource, "WAIT", 0).startswith("TIMEOUT ")
    adopted, next_fence, _ = other.ask("ADOPT", text)
    assert next_fence > fence
    assert client.error("ADOPT", text).startswith("LEASELOST ")
    assert other.ask("UNLOCK", adopted) == 1
