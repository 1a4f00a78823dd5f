"""`make bench`: see README.md beside this file."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

from servers import Servers  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "10"))
CYCLES = int(os.environ.get("CYCLES", "200"))
CONTENDERS = {
    "floor (raw sockets)": [sys.executable, str(HERE / "floor.py")],
    "Rust": [str(ROOT / "target/release/examples/bench")],
    "Python, sync": [sys.executable, str(HERE / "python_sync.py")],
    "Python, asyncio": [sys.executable, str(HERE / "python_asyncio.py")],
    "Node.js": ["node", str(HERE / "node.js")],
}
MANY = ["Rust", "Python, asyncio", "Node.js"]


class Contender:
    """A process that runs cycles when it is asked to."""

    def __init__(self, name: str, urls: list[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [*CONTENDERS[name], *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.run(20)

    def run(self, cycles: int, concurrency: int = 1) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        request = {"cycles": cycles, "concurrency": concurrency}
        self.process.stdin.write(json.dumps(request) + "\n")
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def one_at_a_time(contenders: list[Contender]) -> dict[str, list[float]]:
    """The times of all cycles of each contender, in rounds that take turns."""
    micros: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(ROUNDS):
        for contender in contenders:
            micros[contender.name] += contender.run(CYCLES)["micros"]
    return micros


def throughput(contenders: list[Contender]) -> dict[str, float]:
    """Cycles per second with 64 at once, the median of the rounds."""
    rates: dict[str, list[float]] = {}
    for _ in range(max(3, ROUNDS // 2)):
        for contender in contenders:
            if contender.name in MANY:
                answer = contender.run(max(1, CYCLES // 10), 64)
                rates.setdefault(contender.name, []).append(
                    len(answer["micros"]) / answer["seconds"]
                )
    return {name: statistics.median(values) for name, values in rates.items()}


def table(title: str, times: dict[str, list[float]], base: dict[str, float], of: str) -> None:
    """Medians with quartiles, and the ratio of each median to its base."""
    print(f"\n### {title}\n\n| | median | quartiles | times {of} |\n| --- | ---: | ---: | ---: |")
    for name, micros in times.items():
        low, median, high = statistics.quantiles(micros, n=4)
        ratio = median / base[name]
        print(f"| {name} | {median:.0f} µs | {low:.0f} to {high:.0f} µs | {ratio:.2f} |")


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(micros) for name, micros in times.items()}


def measure(nodes: int, results: dict[str, Any]) -> None:
    with Servers(nodes) as servers:
        contenders = [Contender(name, servers.urls) for name in CONTENDERS]
        progress(f"{nodes} nodes, one at a time")
        times = one_at_a_time(contenders)
        healthy = medians(times)
        floor = dict.fromkeys(times, healthy["floor (raw sockets)"])
        table(f"acquire + release, one at a time, N = {nodes}", times, floor, "floor")
        results[f"one at a time, N = {nodes}"] = healthy
        if nodes > 1:
            progress(f"{nodes} nodes, 64 at once")
            rates = throughput(contenders)
            print(
                f"\n### 64 at once on distinct keys, N = {nodes}\n\n| | cycles/s |\n| --- | ---: |"
            )
            for name, rate in rates.items():
                print(f"| {name} | {rate:,.0f} |")
            results[f"64 at once, N = {nodes}, cycles per second"] = rates
            progress(f"{nodes} nodes, one of them frozen")
            servers[nodes // 2].freeze()
            times = one_at_a_time(contenders)
            table(f"one of {nodes} nodes frozen", times, healthy, "healthy")
            results[f"one of {nodes} frozen"] = medians(times)
            servers[nodes // 2].thaw()
        for contender in contenders:
            contender.close()


def main() -> None:
    build = ["cargo", "build", "--release", "--locked", "-p", "quorlock", "--example", "bench"]
    subprocess.run(build, check=True, cwd=ROOT)
    results: dict[str, Any] = {}
    for nodes in (1, 5):
        measure(nodes, results)
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
