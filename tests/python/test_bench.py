"""How bench/ evaluates the answers of the programs that it measures, and its own results."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from servers import Servers

from bench.commands import PLAIN, Command, check, record
from bench.contender import Contender, FailedError, Process
from bench.contenders import OWN
from bench.gate import BEFORE, compare, earlier
from bench.goals import Goal
from bench.group import Group
from bench.names import ASYNCIO, FLOOR, FLOOR_PLAIN, NODE, PYTHON, RSLOCK, RUST, RUST_ASYNC, UVLOOP
from bench.performance.figures import Figures
from bench.performance.goals import goals
from bench.settings import ROOT
from bench.turns import Lane

FAST = {"micros": [100.0, 200.0, 300.0], "seconds": 0.0006, "cpu": 0.0003}


class ScriptedProcess:
    """A replacement for a process. It returns the given answers one after another."""

    def __init__(self, *answers: dict[str, Any] | str) -> None:
        self.failure = ""
        self._answers = list(answers)

    def ask(self, request: dict[str, int]) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            raise FailedError(answer)
        return answer


def lane(*answers: dict[str, Any] | str) -> Lane:
    contender = Contender("it", "peer", "Python", "sync", [])
    process = cast("Process", ScriptedProcess(*answers))
    # A server group is not needed: it is used only with counts_cpu.
    return Lane(contender, process, cast("Group", None), counts_cpu=False)


def test_the_summary_covers_all_turns() -> None:
    it = lane(FAST, FAST)
    it.turn()
    it.turn()
    summary = it.summary()
    assert (summary["median"], summary["cycles"], summary["failed turns"]) == (200, 6, 0)
    assert (summary["rate"], summary["client cpu"]) == (5000, 100)


def test_a_failed_turn_is_counted_and_the_lane_continues() -> None:
    it = lane("fails: not acquired", FAST, "fails: not acquired", FAST)
    for _ in range(4):
        it.turn()
    assert not it.is_out
    assert it.summary()["failed turns"] == 2


def test_two_failed_turns_in_a_row_end_the_lane() -> None:
    it = lane(FAST, "fails: once", "fails: twice")
    for _ in range(3):
        it.turn()
    assert it.is_out
    assert it.summary() == {"failure": "fails: twice"}


class ScriptedGroup:
    """A replacement for five nodes. Each of them uses 1 ms of CPU time in each turn."""

    servers = (None,) * 5

    def __init__(self) -> None:
        self._cpu = 0.0

    def cpu(self) -> float:
        self._cpu += 0.005
        return self._cpu


def test_the_cpu_time_of_servers_is_per_cycle_and_node() -> None:
    it = lane(FAST, FAST)
    it.group, it.counts_cpu = cast("Group", ScriptedGroup()), True
    it.turn()
    it.turn()
    assert it.summary()["server cpu per node"] == pytest.approx(1000 / 3, abs=0.01)


def filled(commands: list[Command], token: str, time: str = "0") -> list[Command]:
    """Returns the commands as the floor sends them, for the key `key`."""
    values = {"$key": "key", "$token": token, "$time": time}
    for name, value in values.items():
        commands = [[word.replace(name, value) for word in command] for command in commands]
    return commands


def test_the_floor_sends_commands_that_lock_and_release_as_quorlock_does() -> None:
    recorded = record()
    with Servers(1) as (server,):
        for command in recorded.load:
            server.command(*command)
        for command in filled(recorded.acquire, "a" * 40, "1" * 16):
            server.command(*command)
        held = str(server.command("GET", "key"))
        for command in filled(recorded.release, "a" * 40):
            server.command(*command)
        assert held.startswith("a" * 40)
        assert server.command("EXISTS", "key") == 0


def test_the_plain_floor_deletes_only_its_own_lock() -> None:
    with Servers(1) as (server,):
        for command in PLAIN.load:
            server.command(*command)
        replies = [
            server.command(*command)
            for commands, token in [
                (PLAIN.acquire, "mine"),
                (PLAIN.acquire, "other"),
                (PLAIN.release, "other"),
                (PLAIN.release, "mine"),
            ]
            for command in filled(commands, token)
        ]
    assert replies == ["OK", None, 0, 1]


def test_a_peer_that_does_not_release_ends_the_run() -> None:
    answer = json.dumps(FAST | {"micros": [1.0] * 20})
    program = [sys.executable, "-c", f"for _ in open(0): print({answer!r}, flush=True)"]
    with pytest.raises(SystemExit, match="it: 20 of 20 cycles with 0 releases"):
        check([Contender("it", "peer", "Python", "sync", program)])


def results(**medians: float) -> dict[str, Any]:
    """Returns the results of a run that measured only these medians."""
    names = {
        "rust": RUST,
        "floor": FLOOR,
        "plain": FLOOR_PLAIN,
        "peer": "redlock-py",
        "asyncio_peer": "aioredlock",
        "python": PYTHON,
        "asyncio": ASYNCIO,
    }
    found = {names[short]: {"median": figure} for short, figure in medians.items()}
    kinds = {
        RUST: "quorlock",
        FLOOR: "floor",
        FLOOR_PLAIN: "floor",
        "redlock-py": "peer",
        "aioredlock": "peer",
        PYTHON: "quorlock",
        ASYNCIO: "quorlock",
    }
    asynchronous = ("aioredlock", ASYNCIO)
    return {
        "contenders": {
            name: {
                "kind": kind,
                "language": "Python",
                "form": "async" if name in asynchronous else "sync",
            }
            for name, kind in kinds.items()
        },
        "one at a time": {"5": found},
        "in flight": {"1": {}, "8": {}, "64": {}},
        "in flight, one node": {},
        "contention": {"before": {}, "after": {}},
        "faults": {"one frozen": {"healthy": found, "faulty": {}}},
        "held": [],
        "memory": {RUST: {"heap": 2048}},
        "start": {
            "import": {},
            "first lock": {name: {"round trips": 2.2} for name in (RUST, PYTHON, NODE, ASYNCIO)},
        },
    }


def goal(found: dict[str, Any], what: str, wanted: str) -> Goal:
    return next(each for each in goals(Figures(found)) if each.what == what and wanted in each.goal)


@pytest.mark.parametrize(("rust", "met"), [(115.0, True), (116.0, False)])
def test_a_goal_is_met_up_to_its_limit(rust: float, met: bool) -> None:
    found = goal(results(rust=rust, floor=100.0), "Rust, one cycle at a time", "floor")
    assert found.met is met


def test_a_goal_without_a_measurement_is_neither_met_nor_missed() -> None:
    assert goal(results(rust=100.0), "Rust, one cycle at a time", "rslock").met is None


def test_python_is_compared_with_the_fastest_peer_of_the_same_form() -> None:
    found = results(python=100.0, asyncio=200.0, peer=500.0, asyncio_peer=300.0)
    threads = goal(found, "Python, one cycle at a time", "fastest Python peer without asyncio")
    assert (threads.measured, threads.met) == ("5.00 times", True)
    tasks = goal(found, "asyncio, one cycle at a time", "fastest Python peer with asyncio")
    assert (tasks.measured, tasks.met) == ("1.50 times", False)


def with_node_cpu(**figures: float) -> dict[str, Any]:
    """Returns results in which all forms use 10 µs of a server, except those given."""
    names = {"rust_async": RUST_ASYNC, "asyncio": ASYNCIO, "uvloop": UVLOOP, "node": NODE}
    figures = {**dict.fromkeys(names, 10.0), **figures}
    found = results()
    found["in flight"]["64"] = {
        names.get(short, short): {"server cpu per node": figure, "rate": 1.0}
        for short, figure in figures.items()
    }
    return found


@pytest.mark.parametrize(("uvloop", "met"), [(13.0, True), (13.1, False)])
def test_every_form_must_spare_the_servers(uvloop: float, met: bool) -> None:
    found = with_node_cpu(rslock=10.0, uvloop=uvloop)
    what = "CPU time of a server per cycle, 64 cycles in flight"
    assert goal(found, what, RSLOCK).met is met


def test_a_contender_that_fails_with_a_frozen_node_misses_the_goal() -> None:
    assert goal(results(rust=100.0), "one of five nodes frozen", "healthy").met is False


def test_a_value_equal_to_a_strict_limit_misses_the_goal() -> None:
    found = goal(results(rust=1.0), "memory of one held lease in the Rust core", "bytes")
    assert found.met is False


SLOW = {"micros": [200.0, 300.0, 400.0], "seconds": 0.0009, "cpu": 0.0003}


def turned(name: str, *answers: dict[str, Any] | str) -> Lane:
    """A lane of this name that has had its turns."""
    it = lane(*answers)
    it.contender = replace(it.contender, name=name)
    for _ in answers:
        it.turn()
    return it


def test_the_gate_finds_the_forms_that_are_slower_than_before() -> None:
    lanes = [
        turned(RUST, SLOW, SLOW, FAST),
        turned(RUST + BEFORE, FAST, FAST, FAST),
        # The machine was slow in one round.
        turned(PYTHON, FAST, SLOW, FAST),
        turned(PYTHON + BEFORE, FAST, SLOW, FAST),
    ]
    compared = {each.form: each for each in compare(lanes, "1 in flight")}
    assert compared[RUST].ratio == pytest.approx(1.5)
    assert compared[PYTHON].ratio == pytest.approx(1)
    assert [form for form, each in compared.items() if each.is_slower] == [RUST]


def test_a_form_that_fails_only_now_is_slower() -> None:
    lanes = [turned(RUST, "fails: a", "fails: b"), turned(RUST + BEFORE, FAST, FAST)]
    [compared] = compare(lanes, "1 in flight")
    assert compared.is_slower


def test_a_form_that_failed_before_is_not_measured() -> None:
    lanes = [turned(RUST, FAST, FAST), turned(RUST + BEFORE, "fails: a", "fails: b")]
    [compared] = compare(lanes, "1 in flight")
    assert (compared.ratio, compared.is_slower) == (None, False)


@pytest.mark.parametrize(
    ("variables", "saves"),
    [({}, True), ({"SIZES": "short"}, False), ({"ROUNDS": "9"}, False), ({"CYCLES": "9"}, False)],
)
def test_only_the_default_sizes_are_saved(variables: dict[str, str], saves: bool) -> None:
    program = [sys.executable, "-c", "from bench.settings import FULL; print(FULL)"]
    printed = subprocess.check_output(program, env=variables, cwd=ROOT, text=True)
    assert printed == f"{saves}\n"


def test_the_gate_runs_the_programs_of_both_checkouts(tmp_path: Path) -> None:
    for contender in (earlier(each, tmp_path) for each in OWN.values()):
        assert contender.name.endswith(BEFORE)
        assert any(word.startswith(f"{tmp_path}/") for word in contender.command)
