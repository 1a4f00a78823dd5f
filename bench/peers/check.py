"""Runs every peer on real servers, healthy and with one frozen, and prints the results.

    .venv/bin/python -m bench.peers.check [NAME...]

Run it, after `make build`, when you change a pin or a program here; the bench does not need it. The
exit status is 1 if a peer does not behave as declared in __init__.py, or if a cycle is not an
acquire and a release on a majority of the nodes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from servers import Server, Servers

from bench.contender import FailedError, Process
from bench.peers import LIBRARIES, Library, install

CYCLES = 50
NODES = [1, 3, 5]
CONCURRENCY = [1, 8, 64]
PATIENCE = 30.0
"""Seconds after which a cycle with a frozen node counts as hanging."""
STRAGGLERS = 0.2
"""Seconds for commands that a library sends after it has returned."""


@contextmanager
def warmed_up(library: Library, servers: Servers) -> Iterator[Process]:
    contender = library.contender()
    process = Process([*contender.command, *servers.urls], contender.environment)
    try:
        process.ask({"cycles": 5, "concurrency": 1}, 60)
        yield process
    finally:
        process.close()


def deletions(server: Server) -> int:
    """Returns the number of calls of DEL, with which all these libraries release locks."""
    stats = str(server.command("INFO", "commandstats"))
    _, found, rest = stats.partition("cmdstat_del:calls=")
    return int(rest.partition(",")[0]) if found else 0


def try_healthy(library: Library, servers: Servers) -> list[str]:
    """Runs one process with each concurrency, and returns the errors."""
    with warmed_up(library, servers) as process:
        return [
            f"{library.name}, N = {len(list(servers))}, {concurrency} at once: {error}"
            for concurrency in CONCURRENCY
            for error in try_cycles(process, list(servers), concurrency)
        ]


def try_cycles(process: Process, nodes: list[Server], concurrency: int) -> Iterator[str]:
    """Prints figures, and yields the errors."""
    time.sleep(STRAGGLERS)
    before = [deletions(node) for node in nodes]
    began = time.monotonic()
    try:
        answer = process.ask({"cycles": CYCLES, "concurrency": concurrency}, 60)
    except FailedError as error:
        yield str(error)
        return
    took = time.monotonic() - began
    time.sleep(STRAGGLERS)
    after = [deletions(node) for node in nodes]
    released = [new - old for new, old in zip(after, before, strict=True)]
    micros, cycles = sorted(answer["micros"]), CYCLES * concurrency
    cpu, rate = answer["cpu"] / cycles * 1e6, cycles / answer["seconds"]
    print(
        f"  N = {len(nodes)}, {concurrency} at once: median {micros[cycles // 2]:.0f} us,"
        f" most {micros[-1]:.0f} us, {cpu:.0f} us of CPU, {rate:.0f}/s,"
        f" released on each node {released}"
    )
    if len(micros) != cycles or not 0 < answer["seconds"] <= took:
        yield f"the answer is not that of {cycles} cycles in {took} s"
    if micros[-1] > answer["seconds"] * 1e6 or answer["cpu"] <= 0:
        yield "the times in the answer contradict one another"
    if sum(released) < cycles * (len(nodes) // 2 + 1):
        yield f"not {cycles} releases on a majority: {released}"
    if left := [str(node.command("KEYS", "*")) for node in nodes if node.command("DBSIZE")]:
        print(f"  left behind, until their ttl: {left}")
        for node in nodes:
            node.command("FLUSHALL")


def try_frozen(library: Library, servers: Servers) -> list[str]:
    survives = True
    with warmed_up(library, servers) as process:
        servers[2].freeze()
        try:
            # Several cycles: after a timeout the next one may reconnect, which takes longer.
            for _ in range(3):
                answer = process.ask({"cycles": 1, "concurrency": 1}, PATIENCE)
                print(f"  one of five frozen: {answer['micros'][0] / 1e3:.1f} ms")
        except FailedError as error:
            print(f"  one of five frozen: {error}")
            survives = False
        finally:
            left = [node.command("KEYS", "*") for node in servers if node is not servers[2]]
            servers[2].thaw()
    if any(left):
        print(f"  left behind on healthy nodes: {left}")
    return [] if survives == library.frozen else [f"{library.name}: frozen is {survives}"]


def main() -> int:
    chosen = [each for each in LIBRARIES if each.name in sys.argv[1:] or not sys.argv[1:]]
    missing = install(each.ecosystem for each in chosen)
    wrong = [f"{directory} is missing: {reason}" for directory, reason in missing.items()]
    for library in chosen:
        print(library.name)
        for nodes in [1] if library.one_node else NODES:
            with Servers(nodes) as servers:
                wrong += try_healthy(library, servers)
        if not library.one_node:
            with Servers(5) as servers:
                wrong += try_frozen(library, servers)
    print("\n".join(["", *wrong]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
