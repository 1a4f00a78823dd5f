"""Two builds of quorlock on the same nodes: `make test-upgrade BEFORE=directory`.

BEFORE is another checkout, in which `make native` has run. Without BEFORE, both builds are this
one.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from fleet.resp import Reply, ServerReplyError
from nodes import is_free, keys
from servers import Servers
from upgrade.builds import HERE, NEW, OLD, Build, CommandError, Holder
from waiting import wait_until

LOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "exclusive": ("lock", {"resources": ["r"]}),
    "shared": ("lock", {"resources": ["r"], "mode": "shared"}),
    "several": ("lock", {"resources": ["r", "s"]}),
    "permit": ("permit", {"resource": "r", "limit": 1}),
}
"""The command of a holder for each kind of lease."""

LONG = 600.0
"""A time, in seconds, longer than any test."""

SECONDS = 3.0
"""How long workers take turns before the first one is replaced, and after the last one."""


def rival(kind: str) -> tuple[str, dict[str, Any]]:
    """Returns a command for a lease that excludes those of this kind."""
    return LOCKS["permit" if kind == "permit" else "exclusive"]


ORDERS = {"old, then new": (OLD, NEW)}
if OLD.root != NEW.root:
    ORDERS["new, then old"] = (NEW, OLD)


@pytest.fixture(params=ORDERS)
def builds(request: pytest.FixtureRequest) -> tuple[Build, Build]:
    return ORDERS[request.param]


@pytest.fixture
def holders(builds: tuple[Build, Build], servers: Servers) -> Iterator[tuple[Holder, Holder]]:
    with Holder(builds[0], servers.urls) as first, Holder(builds[1], servers.urls) as second:
        yield first, second


@pytest.mark.parametrize("kind", LOCKS)
def test_builds_exclude_each_other_and_fences_grow(
    kind: str, holders: tuple[Holder, Holder], servers: Servers
) -> None:
    command, arguments = LOCKS[kind]
    rival_command, rival_arguments = rival(kind)
    fence = 0
    for holder, other in [holders, holders[::-1], holders]:
        fence_of_last, fence = fence, holder.ask(command, name="a", **arguments)["fence"]
        assert fence > fence_of_last
        with pytest.raises(CommandError, match="TIMEOUT") as refused:
            other.ask(rival_command, name="b", wait=0, **rival_arguments)
        if kind in ("exclusive", "several"):
            assert f"held by {holder.name}" in str(refused.value)
            assert other.ask("holder") == holder.name
        holder.ask("extend", name="a")
        assert holder.ask("release", name="a")
        wait_until(lambda: keys(servers) == [])


def test_readers_of_both_builds_hold_a_lock_together(holders: tuple[Holder, Holder]) -> None:
    first, second = holders
    command, arguments = LOCKS["shared"]
    first.ask(command, name="a", **arguments)
    second.ask(command, name="b", **arguments)
    first.ask("extend", name="a")
    assert first.ask("release", name="a")
    second.ask("extend", name="b")
    writer = second.ask("upgrade", name="b", to="c")
    with pytest.raises(CommandError, match="TIMEOUT"):
        first.ask(command, name="d", wait=0, **arguments)
    assert second.ask("release", name="c")
    assert first.ask(command, name="d", **arguments)["fence"] > writer["fence"]


@pytest.mark.parametrize("kind", LOCKS)
def test_a_release_notifies_a_waiter_of_the_other_build(
    kind: str, builds: tuple[Build, Build], servers: Servers
) -> None:
    command, arguments = LOCKS[kind]
    rival_command, rival_arguments = rival(kind)
    # With such a delay between tries, a waiter gets the lock only if it is notified.
    delay = {"retry_delay": [LONG, LONG]}
    with (
        Holder(builds[0], servers.urls) as first,
        Holder(builds[1], servers.urls, **delay) as second,
    ):
        fence = first.ask(command, name="a", **arguments)["fence"]
        second.begin(rival_command, name="b", **rival_arguments)
        wait_until(lambda: first.ask("waiters", kind=kind) == 1)
        assert first.ask("release", name="a")
        assert second.end()["fence"] > fence


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lease_is_handed_over_to_the_other_build_and_back(
    kind: str, holders: tuple[Holder, Holder], servers: Servers
) -> None:
    command, arguments = LOCKS[kind]
    fence = holders[0].ask(command, name="a", **arguments)["fence"]
    for giver, adopter in [holders, holders[::-1]]:
        text = giver.ask("detach", name="a")
        adopted = adopter.ask("adopt", text=text, name="a")["fence"]
        assert adopted > fence
        fence = adopted
        with pytest.raises(CommandError, match="LEASE_LOST"):
            giver.ask("adopt", text=text, name="b")
    assert holders[0].ask("release", name="a")
    wait_until(lambda: keys(servers) == [])


def test_an_operator_force_releases_what_the_other_build_holds(
    holders: tuple[Holder, Holder], servers: Servers
) -> None:
    first, second = holders
    first.ask("lock", resources=["r"], name="a")
    assert second.ask("force_release", resource="r") == len(servers)
    assert is_free(servers, "r")
    with pytest.raises(CommandError, match="LEASE_LOST"):
        first.ask("extend", name="a")
    second.ask("lock", resources=["r"], name="b")
    assert not first.ask("valid", name="a")


def shape(reply: Reply | ServerReplyError) -> Any:
    """Returns the type of a reply of the daemon, or the code of its error."""
    if isinstance(reply, ServerReplyError):
        return str(reply).split()[0]
    return [shape(item) for item in reply] if isinstance(reply, list) else type(reply)


def replies(daemon: Daemon, r: str) -> list[Any]:
    """Returns the shapes of a daemon's replies to the main requests, about a free resource."""
    with daemon.connect() as client, daemon.connect() as rival:

        def ask(*words: str) -> Reply | ServerReplyError:
            try:
                return client.ask(*words)
            except ServerReplyError as error:
                return error

        lease, _ = client.lock(r, "TTL", "600000", "WAIT", "0")
        found = [("LOCK", rival.error("LOCK", r, "WAIT", "0").split()[0])]
        requests = [
            ["CHECK", lease],
            ["EXTEND", lease],
            ["UNLOCK", lease],
            ["CHECK", lease],
            ["LOCK", r, f"{r}-too", "MODE", "shared", "WAIT", "0"],
            ["LOCK", f"{r}-limited", "LIMIT", "2", "WAIT", "0"],
            ["LOCK", r, "TTL", "soon"],
            ["STATUS", r],
            ["PING"],
            ["NONSENSE"],
        ]
        return [*found, *((words[0], shape(ask(*words))) for words in requests)]


def test_the_daemons_give_replies_of_the_same_shape(servers: Servers, tmp_path: Path) -> None:
    shapes = []
    for build in (OLD, NEW):
        with Daemon(build.command_line(servers.urls), tmp_path / build.name) as daemon:
            shapes.append(replies(daemon, build.name))
    assert shapes[0] == shapes[1]


def test_a_daemon_of_one_build_replaces_one_of_the_other(
    builds: tuple[Build, Build], servers: Servers, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    fences, ids = [], set()
    for build, other in [builds, builds[::-1]]:
        quorlock = build.command_line(servers.urls)
        with Daemon(quorlock, path) as daemon, daemon.connect() as client:
            lease, fence = client.lock("r", "TTL", "600000")
            fences.append(fence)
            ids.add(lease)
            run = other.command_line(servers.urls).run("run", "--wait", "0", "r", "--", "true")
            assert run.returncode == 75, run
            assert client.ask("UNLOCK", lease) == 1
            assert daemon.terminate().returncode == 0
    assert fences == sorted(set(fences))
    assert len(ids) == len(fences)


def test_clients_are_upgraded_one_by_one(servers: Servers) -> None:
    """Workers of the old build take turns, and are replaced one by one. No two turns overlap."""

    command = [sys.executable, str(HERE / "worker.py"), json.dumps(servers.urls)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    turns: list[tuple[int, int, int]] = []
    with ExitStack() as stack:

        def new(build: Build) -> subprocess.Popen[str]:
            worker = subprocess.Popen(command, env=build.environment, **pipes)
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            assert worker.stdout
            build.check(worker.stdout.readline().strip())
            return worker

        def end(worker: subprocess.Popen[str]) -> None:
            out, _ = worker.communicate(timeout=120)
            assert worker.returncode == 0
            turns.extend(map(tuple, json.loads(out)))

        workers = [new(OLD) for _ in range(4)]
        time.sleep(SECONDS)
        for worker in list(workers):
            workers.append(new(NEW))
            workers.remove(worker)
            end(worker)
        time.sleep(SECONDS)
        for worker in workers:
            end(worker)
    turns.sort(key=lambda turn: turn[1])
    for earlier, later in itertools.pairwise(turns):
        assert earlier[2] <= later[1]
        assert earlier[0] < later[0]
