"""examples/leader-election: candidates in three languages for one role."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cargo import build_example
from examples.programs import Program
from nodes import freeze, keys, thaw
from servers import Servers
from waiting import wait_until

ELECTED = r"elected with fence (\d+)"
STEPPED_DOWN = "stepped down: "
WROTE = "wrote a report"

Candidate = Callable[[str], Program]
LANGUAGES = ["Python", "Node.js", "Rust"]


@pytest.fixture(scope="module")
def rust() -> Path:
    """The program in Rust."""
    return build_example("leader")


@pytest.fixture
def candidate(
    rust: Path,
    start: Callable[..., Program],
    start_python: Callable[..., Program],
    start_node: Callable[..., Program],
) -> Candidate:
    """`candidate(language)` starts a candidate."""

    def candidate(language: str) -> Program:
        match language:
            case "Python":
                return start_python("leader-election", "leader.py")
            case "Node.js":
                return start_node("leader-election", "leader.js")
            case _:
                return start([rust], "leader-election")

    return candidate


def start_waiting(candidate: Candidate, language: str, servers: Servers, waiting: int) -> Program:
    """Starts a candidate, and returns once the queue on each node has `waiting` members."""
    program = candidate(language)
    queue = "{leader:reports}:queue"
    wait_until(lambda: all(node.command("ZCARD", queue) == waiting for node in servers))
    return program


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_leader_that_exits_or_is_killed_is_replaced(
    candidate: Candidate, language: str, servers: Servers
) -> None:
    first = candidate(language)
    fences = [int(first.wait_for(ELECTED)[1])]
    others = [other for other in LANGUAGES if other != language]
    second = start_waiting(candidate, others[0], servers, 1)
    third = start_waiting(candidate, others[1], servers, 2)
    first.wait_for(WROTE)
    assert "elected" not in second.text + third.text

    # After the first leader has exited, the second candidate is notified. After the second leader
    # has been killed, the third candidate is elected when the lock expires.
    assert first.terminate() == 0, first.text
    fences.append(int(second.wait_for(ELECTED)[1]))
    second.wait_for(WROTE)
    second.kill()
    fences.append(int(third.wait_for(ELECTED)[1]))
    assert fences == sorted(set(fences))
    third.wait_for(WROTE)
    assert third.terminate() == 0, third.text
    assert not keys(servers)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_leader_without_nodes_steps_down(
    candidate: Candidate, language: str, servers: Servers
) -> None:
    leader = candidate(language)
    fence = int(leader.wait_for(ELECTED)[1])
    freeze(servers)
    # The leader steps down at the end of its lease, although no other leader can be elected.
    leader.wait_for(STEPPED_DOWN)
    written = leader.text.count(WROTE)
    leader.wait_for("no election")
    assert leader.text.count(WROTE) == written
    thaw(servers)
    assert int(leader.wait_for(ELECTED)[1]) > fence
    leader.wait_for(WROTE)
    assert leader.terminate() == 0, leader.text


def freeze_between_writes(leader: Program, path: Path) -> None:
    """Freezes the leader between two writes: during a write, it would keep the database locked."""
    while True:
        leader.freeze()
        with closing(sqlite3.connect(path, timeout=0)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                leader.thaw()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_leader_that_was_paused_steps_down(
    candidate: Candidate, language: str, servers: Servers, tmp_path: Path
) -> None:
    leader = candidate(language)
    leader.wait_for(WROTE)
    successor = start_waiting(candidate, "Python", servers, 1)
    freeze_between_writes(leader, tmp_path / "database")
    fence = int(successor.wait_for(ELECTED)[1])
    successor.wait_for(WROTE)
    leader.thaw()
    leader.wait_for(STEPPED_DOWN)
    assert leader.text.count("elected") == 1
    # The storage accepted no write of the first leader after its successor wrote.
    with closing(sqlite3.connect(tmp_path / "database")) as database:
        assert database.execute("SELECT fence FROM report").fetchone() == (fence,)
