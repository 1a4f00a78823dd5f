"""examples/once: work that runs once for each key, and a cache that computes each value once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples.gateway import Gateway
from examples.programs import Program
from nodes import freeze, keys
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
DIRECTORY = "once"


@pytest.fixture
def cache(start_servers: Callable[..., Servers], environment: dict[str, str]) -> Servers:
    """The server with the cached values."""
    server = start_servers(1)
    environment["CACHE_URL"] = server.urls[0]
    return server


def results(programs: list[Program]) -> set[str]:
    """Waits for the programs, and returns the results that they print."""
    for program in programs:
        assert program.end() == 0, program.text
    return {program.text for program in programs}


def waiters(servers: Servers, resource: str) -> int:
    counts = [server.command("ZCARD", f"{{{resource}}}:queue") for server in servers]
    return sorted(int(str(count)) for count in counts)[1]


def test_work_runs_once_for_each_key(
    start_python: Start, gateway: Gateway, servers: Servers
) -> None:
    gateway.hold()
    first = start_python(DIRECTORY, "once.py", "order-42")
    wait_until(lambda: gateway.states == ["in progress"])
    others = [start_python(DIRECTORY, "once.py", "order-42") for _ in range(3)]
    wait_until(lambda: waiters(servers, "once:order-42") == 3)
    gateway.release()
    (result,) = results([first, *others])
    assert results([start_python(DIRECTORY, "once.py", "order-42")]) == {result}
    assert results([start_python(DIRECTORY, "once.py", "order-43")]) != {result}
    assert [call.key for call in gateway.calls] == ["order-42", "order-43"]


def test_work_that_a_killed_process_began_runs_again(start_python: Start, gateway: Gateway) -> None:
    gateway.hold()
    first = start_python(DIRECTORY, "once.py", "order-42")
    wait_until(lambda: gateway.states == ["in progress"])
    first.kill()
    gateway.release()
    results([start_python(DIRECTORY, "once.py", "order-42")])
    assert [call.key for call in gateway.calls] == ["order-42"] * 2


@pytest.mark.usefixtures("cache")
def test_programs_in_two_languages_compute_a_value_once(
    start_python: Start, start_node: Start, gateway: Gateway, servers: Servers
) -> None:
    gateway.hold()
    first = start_python(DIRECTORY, "cache.py", "sales")
    wait_until(lambda: gateway.states == ["in progress"])
    others = [start_python(DIRECTORY, "cache.py", "sales")]
    others += [start_node(DIRECTORY, "cache.js", "sales") for _ in range(2)]
    wait_until(lambda: waiters(servers, "cache:sales") == 3)
    gateway.release()
    assert len(results([first, *others, start_node(DIRECTORY, "cache.js", "sales")])) == 1
    assert gateway.states == ["answered"]
    wait_until(lambda: not keys(servers))


def test_a_value_that_is_too_old_is_computed_again(
    start_node: Start, gateway: Gateway, cache: Servers
) -> None:
    first = results([start_node(DIRECTORY, "cache.js", "sales")])
    assert 0 < int(str(cache[0].command("TTL", "sales"))) <= 60
    cache[0].command("DEL", "sales")
    assert results([start_node(DIRECTORY, "cache.js", "sales")]) != first
    assert gateway.states == ["answered"] * 2


@pytest.mark.usefixtures("cache")
def test_values_are_computed_although_too_few_nodes_can_vote(
    start_python: Start, start_node: Start, gateway: Gateway, servers: Servers
) -> None:
    freeze(servers)
    programs = [start_python(DIRECTORY, "cache.py", "a"), start_node(DIRECTORY, "cache.js", "b")]
    assert len(results(programs)) == 2
    assert gateway.states == ["answered"] * 2
