"""Resources may have any name: each is a key of its own, and none reaches further than its key."""

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
    """All keys, as the server's replies show them."""
    found = server.command("KEYS", "*")
    assert isinstance(found, list)
    return {str(key) for key in found}


def tag(key: str) -> str:
    """The key's hash tag; nothing if it has none."""
    tag, closed, _ = key.partition("{")[2].partition("}")
    return tag if closed else ""


def is_braced(key: str) -> bool:
    return key.startswith("{") and key.endswith("}")


def is_reserved(key: str) -> bool:
    """Whether it would be the fence key or the queue of another name."""
    base, ending = key[:-6], key[-6:]
    return ending in (":fence", ":queue") and (bool(tag(base)) or is_braced(base))


def queue_of(name: str) -> str:
    if not tag(name):
        return f"{{{name}}}:queue"
    return name + (":queue:queue" if is_braced(name) else ":queue")


def slot(key: str) -> int:
    """The key's slot in a cluster, by the rule that the servers document."""
    return binascii.crc_hqx((tag(key) or key).encode(), 0) % 16384


@contextmanager
def acquiring(lock: quorlock.Lock) -> Iterator[Callable[[], quorlock.Lease]]:
    """Acquires on a thread; gives what waits for the lease."""
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
@pytest.mark.parametrize("name", [*NAMES, "x" * 100_000], ids=ascii)
def test_a_name_is_a_key_of_its_own(server: Server, name: str, prefix: str) -> None:
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
            # What it is called is not taken for a pattern, a number or a command.
            [fence_key] = keys(server) - {"other", key.encode().decode(errors="backslashreplace")}
            assert fence_key.endswith(":fence")
            # A key with a brace that closes nothing cannot be made a hash tag.
            assert slot(fence_key) == slot(key) or ("}" in key and not tag(key))
            assert server.command("GET", fence_key) == str(lease.fence)
            with pytest.raises(quorlock.LockTimeoutError) as caught:
                second.lock(name, wait=0).acquire()
            assert caught.value.resources == (name,)
            lease.extend()
        assert server.command("EXISTS", key) == 0
        assert keys(server) == {"other", fence_key}
        assert server.command("GET", "other") == "kept"


def test_all_names_at_once_are_different_locks(server: Server) -> None:
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
def test_a_waiter_is_called_whatever_the_name(server: Server, name: str) -> None:
    with quorlock.Client([server.url]) as first, quorlock.Client([server.url]) as second:
        lease = first.lock(name).acquire()
        with acquiring(second.lock(name, wait=TIMEOUT)) as acquired:
            wait_until(lambda: server.command("EXISTS", queue_of(name)) == 1)
            lease.release()
            assert acquired().release()


@pytest.mark.parametrize("name", ["a\ud800", "\udfff", "", b"a", 7, None, ["a"]], ids=ascii)
def test_what_is_no_text_is_refused(server: Server, name: str) -> None:
    with quorlock.Client([server.url]) as client:
        with pytest.raises(quorlock.ConfigError, match="must be a string of Unicode characters"):
            client.lock(name)


def test_a_prefix_that_is_no_text_is_refused() -> None:
    """Else two prefixes might be one."""
    with pytest.raises(quorlock.ConfigError, match="key_prefix must be a string of Unicode"):
        quorlock.Client(["memory://a"], key_prefix="a\ud800")


def test_a_name_with_a_hash_tag_shares_nothing_with_the_name_of_the_tag(server: Server) -> None:
    """`{a}:fence` and `{a}:queue` belong to `a`; `{a}` has other keys."""
    server.command("FLUSHALL")
    with quorlock.Client([server.url]) as first, quorlock.Client([server.url]) as second:
        with first.lock("a") as lease, second.lock("{a}") as tagged:
            assert keys(server) == {"a", "{a}", "{a}:fence", "{a}:fence:fence"}
            assert server.command("GET", "{a}:fence") == str(lease.fence)
            assert server.command("GET", "{a}:fence:fence") == str(tagged.fence)
            # Nobody else waits for `a`, so a release of `{a}` notifies nobody.
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
def test_a_name_that_is_a_key_beside_a_lock_is_refused(server: Server, name: str) -> None:
    with quorlock.Client([server.url]) as client:
        with pytest.raises(quorlock.ConfigError, match="is reserved"):
            client.lock(name)
        with pytest.raises(quorlock.ConfigError, match="is reserved"):
            client.lock("fine", name)
