"""`make bench-elections`; see README.md in this directory."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine
from contender import Process
from elections.settings import CHANGES, CRASHES, PATIENCE, RESULTS, SHORT, TTL
from group import Group
from nodes import listeners
from progress import progress

import quorlock

PROGRAM = str(Path(__file__).with_name("candidate.py"))
RESOURCE = "leader"
NAMES = ("one", "two")


class Observer:
    """Notes when it learns of each leader, by its fence."""

    def __init__(self, urls: list[str]) -> None:
        self.seen: dict[int, int] = {}
        self._client = quorlock.Client(urls)
        threading.Thread(target=self._observe, daemon=True).start()

    def _observe(self) -> None:
        for leader in self._client.watch(RESOURCE):
            self.seen[leader.fence] = time.time_ns()

    def delay(self, elected: dict[str, Any]) -> float:
        """Returns the milliseconds from the election until the observer has learnt of it."""
        end = time.monotonic() + PATIENCE
        while elected["fence"] not in self.seen:
            assert time.monotonic() < end, "the observer has missed a leader"
            time.sleep(0.001)
        return milliseconds(elected["elected"], self.seen[elected["fence"]])


def milliseconds(since: int, until: int) -> float:
    return (until - since) / 1e6


def start(name: str, urls: list[str]) -> Process:
    return Process([sys.executable, PROGRAM, name, RESOURCE, str(TTL), *urls], {})


def campaign(process: Process, group: Group, name: str) -> None:
    """Lets a process campaign, and waits until it can be elected or handed over to."""
    process.ask({"campaign": True}, PATIENCE)
    queue = f"{{{RESOURCE}}}:queue"
    end = time.monotonic() + PATIENCE

    def waits() -> bool:
        queued = all(server.command("ZCARD", queue) for server in group.servers)
        return queued and all(listeners(group.servers, RESOURCE, name))

    while not waits():
        assert time.monotonic() < end, f"{name} does not campaign"
        time.sleep(0.001)


def main() -> None:
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "ttl": TTL,
        **{name: [] for name in ("hand-over", "call", "release", "crash", "observer")},
    }
    with ExitStack() as stack:
        group = Group(stack)
        results["placement"] = group.placement
        urls = list(group.urls)
        observer = Observer(urls)
        processes = {name: start(name, urls) for name in NAMES}
        leader, other = NAMES
        processes[leader].ask({"campaign": True}, PATIENCE)
        processes[leader].receive(PATIENCE)
        for number in range(2 * CHANGES + CRASHES):
            progress(f"change of leader {number + 1} of {2 * CHANGES + CRASHES}")
            campaign(processes[other], group, other)
            # Hand-overs and releases take turns.
            if number >= 2 * CHANGES:
                time.sleep(random.uniform(0, TTL))
                killed = time.time_ns()
                os.kill(processes[leader].pid, signal.SIGKILL)
                elected = processes[other].receive(PATIENCE)
                results["crash"].append(milliseconds(killed, elected["elected"]))
                processes[leader].close()
                processes[leader] = start(leader, urls)
            elif number % 2 == 0:
                processes[leader].send({"hand over to": other})
                ended, elected = (processes[name].receive(PATIENCE) for name in (leader, other))
                assert ended["taken"], "the successor has not taken over"
                results["hand-over"].append(milliseconds(ended["ended"], elected["elected"]))
                results["call"].append(milliseconds(ended["ended"], ended["returned"]))
            else:
                processes[leader].send({"release": True})
                ended, elected = (processes[name].receive(PATIENCE) for name in (leader, other))
                results["release"].append(milliseconds(ended["ended"], elected["elected"]))
            results["observer"].append(observer.delay(elected))
            leader, other = other, leader
        for process in processes.values():
            os.kill(process.pid, signal.SIGKILL)
            process.close()
    text = json.dumps(results, indent=1) + "\n"
    if SHORT:
        print(text)
    else:
        RESULTS.write_text(text)
    progress("done\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
