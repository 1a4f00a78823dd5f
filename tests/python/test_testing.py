"""`quorlock.testing`: tests of users without servers and without sleeping.

Each test covers seconds or minutes of quorlock's time, and takes milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quorlock import (
    Client,
    ConfigError,
    LeaseLostError,
    LockTimeoutError,
    QuorumError,
)
from quorlock.testing import Nodes

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "testing"
"""The example on the page `docs/testing.md`."""

PATIENCE = 60
"""The longest time that a test may wait for something that takes no time, in seconds."""


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        yield nodes


def outcomes(error: QuorumError | LockTimeoutError) -> list[str]:
    return [node.outcome for node in error.nodes]


def test_contention_ends_with_the_wait(nodes: Nodes) -> None:
    client = nodes.client(wait=30)
    other = nodes.hold("orders:42")
    with pytest.raises(LockTimeoutError) as raised:
        client.lock("orders:42", wait=0).acquire()
    assert raised.value.holder == "another process"
    with nodes.fast_forward(), pytest.raises(LockTimeoutError):
        client.lock("orders:42").acquire()
    assert other.valid, "it was renewed meanwhile"
    other.release()
    with client.lock("orders:42") as lease:
        assert lease.fence > other.fence


def test_advance_ends_the_wait_of_a_thread(nodes: Nodes) -> None:
    client = nodes.client(wait=30)
    nodes.hold("orders:42")
    raised: list[LockTimeoutError] = []

    def wait() -> None:
        try:
            client.lock("orders:42").acquire()
        except LockTimeoutError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while client.stats().attempts == 0:
        pass
    nodes.advance(30)
    thread.join(PATIENCE)
    assert raised


def test_an_outage_raises_quorum_error(nodes: Nodes) -> None:
    client = nodes.client()
    client.lock("orders:42").acquire().release()
    nodes.cut()
    with nodes.fast_forward(), pytest.raises(QuorumError) as raised:
        client.lock("orders:42").acquire()
    assert outcomes(raised.value) == ["unreachable"] * 3
    nodes.mend()
    with client.lock("orders:42", wait=0):
        pass


def test_frozen_nodes_time_out(nodes: Nodes) -> None:
    client = nodes.client()
    client.lock("orders:42").acquire().release()
    nodes[0].freeze()
    nodes[1].freeze()
    with nodes.fast_forward(), pytest.raises(QuorumError) as raised:
        client.lock("orders:42").acquire()
    assert "timeout" in outcomes(raised.value)
    nodes.thaw()
    with client.lock("orders:42"):
        pass


def test_a_lease_is_lost_without_nodes(nodes: Nodes) -> None:
    client = nodes.client(ttl=10)
    lease = client.lock("orders:42").acquire()
    lost = threading.Event()
    lease.on_lost(lost.set)
    nodes.advance(timedelta(minutes=5))
    assert lease.valid, "it was renewed"
    nodes.cut()
    nodes.advance(10)
    assert not lease.valid
    assert lease.wait_lost(PATIENCE)
    assert lost.wait(PATIENCE)
    with pytest.raises(LeaseLostError):
        lease.check()


def test_a_suspension_loses_the_lease(nodes: Nodes) -> None:
    client = nodes.client(ttl=10)
    with pytest.raises(LeaseLostError), client.lock("orders:42") as lease:
        nodes.suspend(9)
        assert lease.valid
        nodes.suspend(timedelta(seconds=10))
        assert not lease.valid


def test_a_stolen_lease_is_lost_at_once(nodes: Nodes) -> None:
    client = nodes.client(key_prefix="app:")
    with pytest.raises(LeaseLostError), client.lock("orders:42") as lease:
        thief = nodes.steal("app:orders:42")
        assert not lease.valid
        assert thief.valid
        assert thief.fence > lease.fence
    assert thief.release()


def test_a_restart_without_data_is_guarded(nodes: Nodes) -> None:
    client = nodes.client(restart_guard=60, wait=0)
    client.lock("orders:42").acquire().release()
    nodes[0].forget()
    nodes[1].forget()
    with pytest.raises(QuorumError) as raised:
        client.lock("orders:42").acquire()
    assert outcomes(raised.value)[:2] == ["guarded", "guarded"]
    nodes.advance(61)
    client.lock("orders:42").acquire().release()


def test_a_loss_cancels_the_body_of_async_with(nodes: Nodes) -> None:
    async def work() -> None:
        async with client.lock("orders:42"):
            nodes.steal("orders:42")
            await asyncio.sleep(PATIENCE)

    client = nodes.client()
    with pytest.raises(LeaseLostError):
        asyncio.run(work())


def test_names_are_those_of_one_test(nodes: Nodes) -> None:
    with Nodes(2) as others:
        assert not {*others.urls} & {*nodes.urls}
        others.hold("r")
        nodes.hold("r")
        assert [node.url for node in others] == others.urls
        assert len(others) == 2
    for count in (0, 33, -1, 10**30, 1.5, "3", None):
        with pytest.raises(ConfigError, match="must be 1 to 32"):
            Nodes(count)  # type: ignore[arg-type]


def test_close_ends_faults_and_clients() -> None:
    nodes = Nodes(3)
    client = nodes.client()
    held = nodes.hold("r")
    nodes.freeze()
    nodes.cut()
    nodes.close()
    assert not held.valid
    assert "closed" in repr(client)


def test_a_wrong_time_is_refused(nodes: Nodes) -> None:
    for wrong in (-1, timedelta(seconds=-1), 1e300, float("inf"), float("nan"), "5", None):
        with pytest.raises(ConfigError, match="the time must be"):
            nodes.advance(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="the time must be"):
            nodes.suspend(wrong)  # type: ignore[arg-type]


def test_moving_the_clock_of_real_nodes_is_a_config_error(nodes: Nodes) -> None:
    with Client(["redis://127.0.0.1:1"], connect_timeout=0.01) as real:
        with pytest.raises(QuorumError):
            real.lock("r", wait=0).acquire()
        with pytest.raises(ConfigError, match=r"redis://127\.0\.0\.1:1"):
            nodes.advance(60)
        with pytest.raises(ConfigError), nodes.fast_forward():
            pytest.fail("the body ran")


TESTS = """
import pytest
from quorlock import LockTimeoutError, QuorumError

def test_one(quorlock_nodes):
    quorlock_nodes.hold("r")
    with pytest.raises(LockTimeoutError):
        quorlock_nodes.client(wait=0).lock("r").acquire()

def test_two(quorlock_nodes):
    assert quorlock_nodes.client(wait=0).lock("r").acquire()
"""


def run_pytest(directory: Path) -> str:
    # The entry point of the installed package loads the same plugin.
    command = [sys.executable, "-m", "pytest", "-p", "_quorlock_pytest", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, "-q"], cwd=directory, env=environment, capture_output=True, text=True
    )
    return done.stdout


def test_the_fixture_makes_fresh_nodes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    assert "2 passed" in run_pytest(tmp_path)


def test_the_plugin_does_not_import_quorlock(tmp_path: Path) -> None:
    text = "import sys\n\ndef test_it():\n    assert 'quorlock' not in sys.modules\n"
    (tmp_path / "test_it.py").write_text(text)
    assert "1 passed" in run_pytest(tmp_path)


def test_the_example_passes() -> None:
    assert re.search(r"^[1-9]\d* passed", run_pytest(EXAMPLE), re.M)
