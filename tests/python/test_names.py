"""A resource can have any name: each name has its own keys, and affects no others."""

from __future__ import annotations

import binascii
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import Server, Servers
from waiting import TIMEOUT, wait_until

import quorlock

NAMES: list[str] = json.loads(
    (Path(__file__).resolve().parent.parent / "vectors" / "names.json").read_text()
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Servers(1) as servers:
        yield servers[0]


def keys(server: Server) -> set[str]:
    """Returns all keys, with invalid UTF-8 escaped as in `Server.command`."""
    found = server.command("KEYS", "*")
    assert isinstance(found, list)
    return {str(key) for key in found}


def tag(key: str) -> str:
    """Returns the hash tag of the key; an empty string if it has none."""
    tag, closed, _ = key.partition("{")[2].partition("}")
    return tag if closed else ""


def is_braced(key: str) -> bool:
    return key.startswith("{") and key.endswith("}")


def is_reserved(key: str) -> bool:
    """Returns whether the key would be the fence key or the queue of another name."""
    base, ending = key[:-6], key[-6:]
    return ending in (":fence", ":queue") and (bool(tag(base)) or is_braced(base))


def queue_of(name: str) -> str:
    if not tag(name):
        return f"{{{name}}}:queue"
    return name + (":queue:queue" if is_braced(name) else ":queue")


def slot(key: str) -> int:
    """Returns the cluster slot of the key, computed as documented by Redis."""
    return binascii.crc_hqx((tag(key) or key).encode(), 0) % 16384


@contextmanager
def acquiring(lock: quorlock.Lock) -> Iterator[Callable[[], quorlock.Lease]]:
    """Acquires on a thread. Yields a function that waits for the lease and returns it."""
    leases: list[quorlock.Lease] = []
    thread = threading.Thread(target=lambda: leases.append(lock.acquire()))

    def lease() -> quorlock.Lease:
        thread.join()
        return leases[0]

    thread.start()
    try:
        yield lease
    finally:
        thread.join()


@pytest.mark.parametrize("prefix", ["", "lock:", "{tag}", "}{"])
@pytest.mark.parametrize("name", [*NAMES, "x" * 8192], ids=ascii)
def test_any_name_is_locked_under_its_own_key(server: Server, name: str, prefix: str) -> None:
    server.command("FLUSHALL")
    server.command("SET", "other", "kept")
    key = prefix + name
    if is_reserved(key):
        with quorlock.Client([server.url], key_prefix=prefix) as client:
            with pytest.raises(quorlock.ConfigError, match="is reserved"):
                client.lock(name)
        return
    with quorlock.Client([server.url], key_prefix=prefix, node_timeout=30) as client:
        with client.lock(name) as lease, quorlock.Client([server.url], key_prefix=prefix) as second:
            assert lease.resources == (name,)
            assert server.command("GET", key) == lease.token
            # The name is not interpreted as a pattern, a number or a command.
            [fence_key] = keys(server) - {"other", key.encode().decode(errors="backslashreplace")}
            assert fence_key.endswith(":fence")
            # Both keys are in one slot. The exception is a key with a `}` that has no hash tag.
            assert slot(fence_key) == slot(key) or ("}" in key and not tag(key))
            assert server.command("GET", fence_key) == str(lease.fence)
            with pytest.raises(quorlock.LockTimeoutError) as caught:
                second.lock(name, wait=0).acquire()
            assert caught.value.resources == (name,)
            lease.extend()
        assert server.command("EXISTS", key) == 0
        assert keys(server) == {"other", fence_key}
        assert server.command("GET", "other") == "kept"


def test_all_names_can_be_locked_at_the_same_time(server: Server) -> None:
    server.command("FLUSHALL")
    with quorlock.Client([server.url], wait=TIMEOUT) as client:
        held = NAMES[:60]
        with client.lock(*held) as lease:
            assert lease.resources == tuple(held)
            assert [server.command("GET", name) for name in held] == [lease.token] * len(held)
        leases = [client.lock(name).acquire() for name in NAMES]
        assert len({lease.token for lease in leases}) == len(NAMES)
        for lease in leases:
            assert lease.release()
    assert all(key.endswith(":fence") for key in keys(server))


@pytest.mark.parametrize("name", NAMES[:20], ids=ascii)
def test_a_waiter_is_notified_for_any_name(server: Server, name: str) -> None:
    with quorlock.Client([server.url]) as first, quorlock.Client([server.url]) as second:
        lease = first.lock(name).acquire()
        with acquiring(second.lock(name, wait=TIMEOUT)) as acquired:
            wait_until(lambda: server.command("EXISTS", queue_of(name)) == 1)
            lease.release()
            assert acquired().release()


@pytest.mark.parametrize("name", ["a\ud800", "\udfff", "", b"a", 7, None, ["a"]], ids=ascii)
def test_a_name_that_is_not_unicode_text_is_refused(server: Server, name: str) -> None:
    with quorlock.Client([server.url]) as client:
        with pytest.raises(quorlock.ConfigError, match="the resource must be a string"):
            client.lock(name)


def test_a_prefix_that_is_not_unicode_text_is_refused() -> None:
    """Otherwise, the conversion to UTF-8 could make two different prefixes equal."""
    with pytest.raises(quorlock.ConfigError, match="key_prefix must be a string of Unicode"):
        quorlock.Client(["memory://a"], key_prefix="a\ud800")


def test_a_name_with_a_hash_tag_shares_no_key_with_the_tag_as_a_name(server: Server) -> None:
    """`{a}:fence` and `{a}:queue` belong to the name `a`; the name `{a}` has other keys."""
    server.command("FLUSHALL")
    with quorlock.Client([server.url]) as first, quorlock.Client([server.url]) as second:
        with first.lock("a") as lease, second.lock("{a}") as tagged:
            assert keys(server) == {"a", "{a}", "{a}:fence", "{a}:fence:fence"}
            assert server.command("GET", "{a}:fence") == str(lease.fence)
            assert server.command("GET", "{a}:fence:fence") == str(tagged.fence)
            # Each release notifies only the waiter in its own queue.
            with acquiring(second.lock("a", wait=TIMEOUT)) as acquired:
                wait_until(lambda: server.command("ZCARD", "{a}:queue") == 1)
                with acquiring(first.lock("{a}", wait=TIMEOUT)) as also_acquired:
                    wait_until(lambda: server.command("ZCARD", "{a}:queue:queue") == 1)
                    assert server.command("ZCARD", "{a}:queue") == 1
                    tagged.release()
                    assert also_acquired().release()
                lease.release()
                assert acquired().release()


@pytest.mark.parametrize("name", ["{a}:fence", "{a}:queue", "x{a}y:fence", "{}a}:fence"])
def test_a_name_that_is_the_fence_or_queue_key_of_another_name_is_refused(
    server: Server, name: str
) -> None:
    with quorlock.Client([server.url]) as client:
        with pytest.raises(quorlock.ConfigError, match="is reserved"):
            client.lock(name)
        with pytest.raises(quorlock.ConfigError, match="is reserved"):
            client.lock("fine", name)
