"""Runs every peer on real servers, healthy and with one frozen, and prints the results.

    .venv/bin/python bench/peers/check.py [NAME...]

Run it, after `make build`, when you change a pin or a program here; the bench does not need it. The
exit status is 1 if a peer does not behave as declared in __init__.py, or if a cycle is not an
acquire and a release on a majority of the nodes.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests")]

from servers import Server, Servers  # noqa: E402

from peers import Peer, available  # noqa: E402

CYCLES = 50
NODES = [1, 3, 5]
CONCURRENCY = [1, 8, 64]
PATIENCE = 30.0
"""Seconds after which a cycle with a frozen node counts as hanging."""
STRAGGLERS = 0.2
"""Seconds for commands that a library sends after it has returned."""


class Program:
    """A running peer. At the end of `with` it is killed unless it exits by itself."""

    def __init__(self, peer: Peer, servers: Servers) -> None:
        self._process = subprocess.Popen(
            [*peer.command, *servers.urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **peer.environment},
        )

    def run(self, cycles: int, concurrency: int, patience: float) -> dict[str, Any]:
        """Returns the answer; an error if there is none within `patience` seconds."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"cycles": cycles, "concurrency": concurrency}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], patience)[0]:
            return {"error": f"no answer in {patience:g} s"}
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"error": "ended"}')
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def deletions(server: Server) -> int:
    """Returns the number of calls of DEL, with which all these libraries release locks."""
    stats = str(server.command("INFO", "commandstats"))
    _, found, rest = stats.partition("cmdstat_del:calls=")
    return int(rest.partition(",")[0]) if found else 0


def try_healthy(peer: Peer, servers: Servers) -> list[str]:
    """Runs one process with each concurrency, and returns the errors."""
    wrong = []
    nodes = list(servers)
    with Program(peer, servers) as program:
        program.run(5, 1, 60)
        for concurrency in CONCURRENCY if peer.concurrency else [1]:
            time.sleep(STRAGGLERS)
            before = [deletions(node) for node in nodes]
            began = time.monotonic()
            answer = program.run(CYCLES, concurrency, 60)
            took = time.monotonic() - began
            time.sleep(STRAGGLERS)
            after = [deletions(node) for node in nodes]
            released = [new - old for new, old in zip(after, before, strict=True)]
            where = f"{peer.name}, N = {len(nodes)}, {concurrency} at once"
            if "error" in answer:
                wrong.append(f"{where}: {answer['error']}")
                continue
            micros, cycles = sorted(answer["micros"]), CYCLES * concurrency
            cpu, rate = answer["cpu"] / cycles * 1e6, cycles / answer["seconds"]
            print(
                f"{where}: median {micros[cycles // 2]:.0f} us, most {micros[-1]:.0f} us,"
                f" {cpu:.0f} us of CPU, {rate:.0f}/s, released on each node {released}"
            )
            if len(micros) != cycles or not 0 < answer["seconds"] <= took:
                wrong.append(f"{where}: the answer is not that of {cycles} cycles in {took} s")
            if micros[-1] > answer["seconds"] * 1e6 or answer["cpu"] <= 0:
                wrong.append(f"{where}: the times in the answer contradict one another")
            if sum(released) < cycles * (len(nodes) // 2 + 1):
                wrong.append(f"{where}: not {cycles} releases on a majority: {released}")
            left = [str(node.command("KEYS", "*")) for node in nodes if node.command("DBSIZE")]
            if left:
                print(f"{where}: left behind, until their ttl: {left}")
                for node in nodes:
                    node.command("FLUSHALL")
    return wrong


def try_frozen(peer: Peer, servers: Servers) -> list[str]:
    with Program(peer, servers) as program:
        program.run(5, 1, 60)
        servers[2].freeze()
        # Run several cycles: after a timeout the next one may reconnect, which takes longer.
        told = []
        try:
            for _ in range(3):
                answer = program.run(1, 1, PATIENCE)
                told.append(answer.get("error") or f"{answer['micros'][0] / 1e3:.1f} ms")
                if "error" in answer:
                    break
            left = [node.command("KEYS", "*") for node in servers if node is not servers[2]]
        finally:
            servers[2].thaw()
    print(f"{peer.name}, N = 5, one frozen: {', '.join(told)}")
    if any(left):
        print(f"{peer.name}, N = 5, one frozen: left behind on healthy nodes: {left}")
    survives = "error" not in answer
    return [] if survives == peer.frozen else [f"{peer.name}: frozen is {survives}"]


def main() -> int:
    peers, missing = available()
    wrong = [f"{name} is missing: {reason}" for name, reason in missing.items()]
    for peer in peers:
        if sys.argv[1:] and peer.name not in sys.argv[1:]:
            continue
        for nodes in NODES if peer.nodes == "many" else [1]:
            with Servers(nodes) as servers:
                wrong += try_healthy(peer, servers)
        if peer.nodes == "many":
            with Servers(5) as servers:
                wrong += try_frozen(peer, servers)
    print("\n".join(["", *wrong]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
