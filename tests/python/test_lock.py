"""The Python API of the lock, on real servers."""

from __future__ import annotations

import copy
import pickle
import threading
import traceback
from collections.abc import Iterator
from datetime import timedelta

import pytest
from nodes import is_free, steal
from servers import Servers
from waiting import wait_until

import quorlock


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls) as client:
        yield client


def test_with_holds_the_lock_and_releases_it(client: quorlock.Client, servers: Servers) -> None:
    with client.lock("r") as lease:
        assert lease.valid
        assert 0 < lease.remaining < 10
        assert servers[0].command("GET", "r") in (lease.token, None)
        assert client.lock("r").locked()
    assert not lease.valid
    wait_until(lambda: is_free(servers, "r"))


def test_with_releases_the_lock_when_its_body_raises(
    client: quorlock.Client, servers: Servers
) -> None:
    with pytest.raises(KeyError, match="body"), client.lock("r"):
        raise KeyError("body")
    wait_until(lambda: is_free(servers, "r"))


def test_the_body_of_with_does_not_run_without_the_lock(client: quorlock.Client) -> None:
    with client.lock("r"), pytest.raises(quorlock.LockTimeoutError), client.lock("r", wait=0):
        pytest.fail("the body ran")


def test_leaving_with_after_the_lease_was_stolen_raises(
    client: quorlock.Client, servers: Servers
) -> None:
    with pytest.raises(quorlock.LeaseLostError, match="majority"), client.lock("r"):
        steal(servers, "r")
    assert servers[0].command("GET", "r") == "thief"


def test_a_lease_can_be_released_in_its_block(client: quorlock.Client) -> None:
    with client.lock("r") as lease:
        assert lease.release()
        assert not lease.release()


def test_a_lock_object_can_be_reused_and_nested(client: quorlock.Client) -> None:
    lock = client.lock("r", wait=0)
    for _ in range(3):
        with lock as outer:
            with pytest.raises(quorlock.LockTimeoutError), lock:
                pytest.fail("the inner block ran")
            assert outer.valid


def test_a_lease_has_all_resources_and_their_fences(client: quorlock.Client) -> None:
    lock = client.lock("b", "a")
    assert repr(lock) == "<quorlock.Lock on 'b', 'a'>"
    with lock as lease:
        assert lease.resources == ("b", "a")
        fences = lease.fences
        assert list(fences) == ["b", "a"]
        assert f"'b' (fence {fences['b']}), 'a' (fence {fences['a']}), valid" in repr(lease)
        fences.clear()
        assert list(lease.fences) == ["b", "a"], "`fences` returned the same dict twice"
        with pytest.raises(quorlock.ConfigError, match="`fences`") as caught:
            _ = lease.fence
    assert caught.value.resources == ("b", "a")
    with client.lock("a") as lease:
        assert lease.fences == {"a": lease.fence}
        assert lease.fence > fences.get("a", 0)
        assert repr(lease).startswith(f"<quorlock.Lease of 'a' (fence {lease.fence}), valid for")


def test_a_block_can_be_left_in_another_thread(client: quorlock.Client, servers: Servers) -> None:
    def generate() -> Iterator[quorlock.Lease]:
        with client.lock("r") as lease:
            yield lease

    generator = generate()
    thread = threading.Thread(target=lambda: next(generator))
    thread.start()
    thread.join()
    assert client.lock("r").locked()
    assert next(generator, None) is None
    wait_until(lambda: is_free(servers, "r"))


def test_a_decorated_function_holds_the_lock(client: quorlock.Client) -> None:
    @client.lock("report", wait=0)
    def report(factor: int) -> int:
        """Reports."""
        assert client.lock("report").locked()
        return 2 * factor

    assert report(21) == 42
    assert report(factor=1) == 2
    assert report.__doc__ == "Reports."


def test_durations_can_be_timedeltas(client: quorlock.Client) -> None:
    with client.lock("r", ttl=timedelta(seconds=60), wait=timedelta(0)) as lease:
        assert 30 < lease.remaining < 60
        lease.extend(timedelta(minutes=10))
        assert lease.remaining > 500


def test_a_traceback_shows_the_public_name_of_an_error() -> None:
    shown = traceback.format_exception_only(quorlock.ClosedError("the client is closed"))
    assert shown == ["quorlock.ClosedError: the client is closed\n"]


def test_errors_name_every_node_and_can_be_pickled(
    client: quorlock.Client, servers: Servers
) -> None:
    steal(servers, "r")
    with pytest.raises(TimeoutError) as caught:
        client.lock("r", wait=0).acquire()
    error = caught.value
    assert isinstance(error, quorlock.LockTimeoutError)
    assert (error.code, error.resource, error.resources) == ("TIMEOUT", "r", ("r",))
    assert [node.address for node in error.nodes] == servers.urls
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(copied) == str(error)
        assert (copied.resources, copied.nodes) == (error.resources, error.nodes)


def test_an_unknown_option_is_refused_with_the_list_of_known_options() -> None:
    with pytest.raises(
        quorlock.ConfigError,
        match=r"tll is not an option.*ttl, wait, auto_extend, heartbeat_timeout, max_hold",
    ):
        quorlock.Client(["memory://a"], tll=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="connect_timeout"):
        quorlock.Client(["memory://a"]).lock("r", connect_timeout=1)  # type: ignore[call-overload]


def test_nodes_can_come_from_the_environment(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORLOCK_NODES", " , ".join(servers.urls))
    with quorlock.Client() as client, client.lock("r"):
        assert "quorlock client of redis://" in repr(client)
    # Commas also separate the hosts of one sentinel node.
    monkeypatch.setenv("QUORLOCK_NODES", "redis-sentinel://a,b:7/orders , redis://c")
    with quorlock.Client() as client:
        addresses = [node.address for node in client.stats().nodes]
    assert addresses == ["redis-sentinel://a:26379,b:7/orders", "redis://c:6379"]
    monkeypatch.delenv("QUORLOCK_NODES")
    with pytest.raises(quorlock.ConfigError, match="QUORLOCK_NODES"):
        quorlock.Client()


def test_waiting_releases_the_gil(client: quorlock.Client) -> None:
    iterations = 0
    with client.lock("r"):

        def wait() -> None:
            with pytest.raises(quorlock.LockTimeoutError):
                client.lock("r", wait=0.3).acquire()

        waiter = threading.Thread(target=wait)
        waiter.start()
        while waiter.is_alive():
            iterations += 1
        waiter.join()
    assert iterations > 100
