"""`make bench`: see README.md beside this file."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

from servers import Server, Servers  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "20"))
CYCLES = int(os.environ.get("CYCLES", "200"))
PIN = os.environ.get("PIN", "on") != "off"
FLOOR = "floor (raw sockets)"
GUARDED = "Rust, restart guard on"
CONTENDERS = {
    FLOOR: [sys.executable, str(HERE / "floor.py")],
    "Rust": [str(ROOT / "target/release/examples/bench")],
    GUARDED: ["env", "RESTART_GUARD=on", str(ROOT / "target/release/examples/bench")],
    "Python, sync": [sys.executable, str(HERE / "python_sync.py")],
    "Python, asyncio": [sys.executable, str(HERE / "python_asyncio.py")],
    "Node.js": ["node", str(HERE / "node.js")],
}
MANY = ["Rust", "Python, asyncio", "Node.js"]
HEALTHY = "N = 5"
FROZEN = "N = 5, one frozen"
SETTINGS = {"N = 1": 1, HEALTHY: 5, FROZEN: 5}


@dataclass
class Contender:
    """A process that runs cycles when it is asked to, and the times that they took."""

    setting: str
    name: str
    process: subprocess.Popen[str]
    micros: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def run(self, cycles: int, concurrency: int = 1) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        request = {"cycles": cycles, "concurrency": concurrency}
        self.process.stdin.write(json.dumps(request) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}, {self.setting}: ended by itself")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)

    def summary(self, base: float) -> dict[str, float]:
        low, median, high = statistics.quantiles(self.micros, n=4)
        p99 = statistics.quantiles(self.micros, n=100)[98]
        return {"median": median, "low": low, "high": high, "p99": p99, "ratio": median / base}


def start(stack: ExitStack, setting: str, servers: Servers) -> list[Contender]:
    contenders = []
    for name, command in CONTENDERS.items():
        process = subprocess.Popen(
            [*command, *servers.urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        contender = Contender(setting, name, process)
        stack.callback(contender.close)
        contender.run(20)
        contenders.append(contender)
    return contenders


def uptime(server: Server) -> int:
    info = str(server.command("INFO", "server"))
    return int(info.split("uptime_in_seconds:")[1].split("\r")[0])


def wait_for_votes(servers: list[Servers]) -> None:
    """Until the nodes have been up for so long that the guard of a second counts them."""
    for server in (server for group in servers for server in group):
        while uptime(server) < 3:
            time.sleep(0.1)


def place(servers: list[Servers]) -> str:
    """Gives servers and clients CPUs of their own; returns what to say about it.

    Otherwise the scheduler chooses, differently for each contender and by what else runs: on one
    CPU nobody has to be woken on another, which costs more than all the rest.
    """
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not PIN or len(cpus) < 2:
        return "placed by the scheduler"
    middle = len(cpus) // 2
    for server in (server for group in servers for server in group):
        os.sched_setaffinity(server.pid, cpus[:middle])
    os.sched_setaffinity(0, cpus[middle:])  # inherited by the contenders
    return f"servers on CPU {cpus[:middle]}, clients on CPU {cpus[middle:]}"


def progress(text: str) -> None:
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


def measure(contenders: list[Contender]) -> None:
    """All take turns in every round, also the frozen with the healthy."""
    for number in range(ROUNDS):
        progress(f"round {number + 1} of {ROUNDS}")
        for contender in contenders:
            contender.micros += contender.run(CYCLES)["micros"]
        for contender in contenders:
            if contender.setting == HEALTHY and contender.name in MANY and number % 4 == 0:
                answer = contender.run(max(1, CYCLES // 10), 64)
                contender.rates.append(len(answer["micros"]) / answer["seconds"])
    progress("")


def report(contenders: list[Contender], placement: str) -> dict[str, Any]:
    """Prints the tables, and returns what they say."""
    print(f"Acquire + release, {ROUNDS} rounds of {CYCLES} cycles; {placement}.")
    medians = {(c.setting, c.name): statistics.median(c.micros) for c in contenders}
    results: dict[str, Any] = {"rounds": ROUNDS, "cycles": CYCLES, "placement": placement}
    for setting in SETTINGS:
        of = "healthy" if setting == FROZEN else "floor"
        print(f"\n### One at a time, {setting}\n")
        print(f"| | median | quartiles | p99 | times {of} |\n| --- | ---: | ---: | ---: | ---: |")
        for contender in contenders:
            if contender.setting == setting:
                name = contender.name
                base = (HEALTHY, name) if setting == FROZEN else (setting, FLOOR)
                row = contender.summary(medians[base])
                results.setdefault(setting, {})[name] = row
                print(
                    f"| {name} | {row['median']:.0f} µs | {row['low']:.0f} to {row['high']:.0f} µs"
                    f" | {row['p99']:.0f} µs | {row['ratio']:.2f} |"
                )
    print("\n### 64 at once on distinct keys, N = 5\n\n| | cycles/s |\n| --- | ---: |")
    rates = {c.name: statistics.median(c.rates) for c in contenders if c.rates}
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} |")
    return results | {"64 at once, cycles per second": rates}


def main() -> None:
    build = ["cargo", "build", "--release", "--locked", "-p", "quorlock", "--example", "bench"]
    subprocess.run(build, check=True, cwd=ROOT)
    with ExitStack() as stack:
        progress("starting")
        servers = {s: stack.enter_context(Servers(nodes)) for s, nodes in SETTINGS.items()}
        placement = place(list(servers.values()))
        wait_for_votes(list(servers.values()))
        contenders = []
        for setting, group in servers.items():
            contenders += start(stack, setting, group)
        servers[FROZEN][2].freeze()
        measure(contenders)
        results = report(contenders, placement)
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
