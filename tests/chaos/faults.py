"""Which faults strike when: a random plan that a seed repeats, and how they are inflicted.

The plan is repeated by the seed; what becomes of it is not: real processes interleave as they like.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import get_args

from chaos.clients import Clients
from chaos.history import Stroke
from chaos.network import Network
from proxy import Mode
from servers import Servers

RESOURCES = ["orders", "stock", "report"]

SHORT = (0.02, 0.3)
LONG = (0.3, 3.0)
"""For how many seconds a fault lasts."""

SERVER_FAULTS = {"server killed": "process", "server stopped": "process"}
QUEUE_FAULTS = {"queues lost": "process", "calls cut": "process"}
"""A server forgets who waits, or loses the connections on which it calls."""
PROXY_FAULTS = {
    "delay": "delay",
    "cut": "cut",
    "refuse": "mode",
    "hold": "mode",
    "hold commands": "mode",
    "hold replies": "mode",
    "drop replies": "mode",
    "lose reply": "mode",
}
PROCESS_FAULTS = {"client killed": "client", "client stopped": "client"}
NETWORK_FAULTS = {
    "client cut off": "network",
    "client unheard": "network",
    "client deaf": "network",
}
"""Those of client processes, and those that need network namespaces."""
CLIENT_FAULTS = PROCESS_FAULTS | NETWORK_FAULTS

SLOTS = SERVER_FAULTS | QUEUE_FAULTS | PROXY_FAULTS | CLIENT_FAULTS
"""The kinds of faults. What has the same slot cannot strike the same target at once."""

HOLDING = 0.8
"""How often a client that is killed or stopped is to be one that holds something."""
HOLDER_PATIENCE = 0.5
"""Seconds for which a fault that is to strike a holder waits until its target is one."""

MOMENTARY = {"cut", *QUEUE_FAULTS}
"""The kinds that have no length."""

MAJORITY = 0.4
"""How often a fault strikes more nodes than may fail, how often so many restart, and how often most
clients are killed or stopped at once."""


@dataclass(frozen=True)
class Fault:
    """One fault, at times in seconds since the storm began."""

    kind: str
    target: int
    """The number of the node, or of the client."""
    begins: float
    ends: float
    delay: float
    """Seconds, of a delay."""
    holding: bool
    """Whether a client is struck while it holds something, if it does so soon."""


@dataclass(frozen=True)
class Storm:
    """Faults that may overlap, all of which have ended when it is over."""

    seconds: float
    faults: tuple[Fault, ...]
    calm: float
    """How long it is quiet after it, at least."""


def storms(seed: int, nodes: int, clients: int, namespaces: bool) -> Iterator[Storm]:
    """Storm after storm, without end. Each has every kind of fault, most of which strike alone."""
    kinds = [kind for kind in SLOTS if namespaces or kind not in NETWORK_FAULTS]
    for number in count():
        planner = _Planner(random.Random(f"{seed} {number}"), nodes, clients)
        planner.each_of(kinds)
        if planner.random.random() < MAJORITY:
            kinds_of_nodes = [*SERVER_FAULTS, *QUEUE_FAULTS, *PROXY_FAULTS]
            planner.majority(planner.random.choice(kinds_of_nodes), LONG)
        if planner.random.random() < MAJORITY:
            planner.majority("server killed", SHORT)
        if planner.random.random() < MAJORITY:
            planner.majority(planner.random.choice([*PROCESS_FAULTS]), LONG)
        yield planner.storm()


def restarts(seed: int, nodes: int) -> Iterator[Storm]:
    """Storms in which nothing happens but that majorities restart: see what the guard is for."""
    for number in count():
        planner = _Planner(random.Random(f"{seed} {number}"), nodes, 0)
        for _ in range(6):
            planner.majority("server killed", SHORT)
        yield planner.storm()


class _Planner:
    def __init__(self, randomness: random.Random, nodes: int, clients: int) -> None:
        self.random = randomness
        self._nodes = nodes
        self._clients = clients
        self._seconds = randomness.uniform(5, 9)
        self._faults: list[Fault] = []

    def each_of(self, kinds: list[str]) -> None:
        for kind in self.random.sample(kinds, len(kinds)):
            while not self._add(kind, *self._times(self.random.choice([SHORT, LONG, LONG]))):
                pass  # at that time, all targets are busy

    def majority(self, kind: str, lasting: tuple[float, float]) -> None:
        begins, ends = self._times(lasting)
        all_targets = self._clients if kind in CLIENT_FAULTS else self._nodes
        for _ in range(self.random.randint(all_targets // 2 + 1, all_targets)):
            # A moment apart: they do not fail in the same microsecond.
            self._add(kind, begins + self.random.uniform(0, 0.05), ends)

    def storm(self) -> Storm:
        faults = tuple(sorted(self._faults, key=lambda fault: fault.begins))
        return Storm(self._seconds, faults, self.random.uniform(0.5, 2))

    def _times(self, lasting: tuple[float, float]) -> tuple[float, float]:
        lasts = self.random.uniform(*lasting)
        begins = self.random.uniform(0, self._seconds - lasts)
        return begins, begins + lasts

    def _add(self, kind: str, begins: float, ends: float) -> bool:
        """Adds a fault to a target that has none of its slot then, if there is one."""
        number = self._clients if kind in CLIENT_FAULTS else self._nodes
        busy = {
            fault.target
            for fault in self._faults
            if SLOTS[fault.kind] == SLOTS[kind] and fault.begins <= ends and begins <= fault.ends
        }
        free = [target for target in range(number) if target not in busy]
        if free:
            ends = begins if kind in MOMENTARY else max(begins, ends)
            target, delay = self.random.choice(free), self.random.uniform(0.01, 0.6)
            holding = self.random.random() < HOLDING
            self._faults.append(Fault(kind, target, begins, ends, delay, holding))
        return bool(free)


class Faults:
    """Inflicts faults on real servers and clients, and remembers which."""

    def __init__(self, servers: Servers, clients: Clients, network: Network | None) -> None:
        self._servers = servers
        self._clients = clients
        self._network = network
        self._open: dict[Fault, Stroke] = {}
        self.strokes: list[Stroke] = []

    def storm(self, storm: Storm) -> None:
        """Lets the storm pass. Afterwards all is well with servers and clients."""
        began = time.monotonic()
        steps = sorted(
            [(fault.begins, 0, fault) for fault in storm.faults]
            + [(fault.ends, 1, fault) for fault in storm.faults],
            key=lambda step: step[:2],
        )
        for at, is_end, fault in steps:
            self._clients.watch(began + at)
            if is_end:
                self._end(fault)
            else:
                self._begin(fault)
        self._clients.watch(began + storm.seconds)

    def _begin(self, fault: Fault) -> None:
        if fault.kind in PROCESS_FAULTS and fault.holding:
            deadline = time.monotonic() + HOLDER_PATIENCE
            while not self._clients[fault.target].holds and time.monotonic() < deadline:
                time.sleep(0.001)
        is_client = fault.kind in CLIENT_FAULTS
        target = self._clients[fault.target].name if is_client else f"node {fault.target + 1}"
        now = time.monotonic_ns()
        stroke = Stroke(fault.kind, target, now, now)
        match fault.kind:
            case "server killed":
                self._servers[fault.target].kill()
            case "server stopped":
                self._servers[fault.target].freeze()
            case "client killed":
                self._clients[fault.target].kill()
            case "client stopped":
                self._clients[fault.target].stop()
            case "client cut off" | "client unheard" | "client deaf" as kind:
                assert self._network is not None
                self._network.lose(
                    fault.target, requests=kind != "client deaf", replies=kind != "client unheard"
                )
            case "delay":
                self._servers.proxies[fault.target].delay = fault.delay
            case "cut":
                self._servers.proxies[fault.target].cut()
            case "queues lost":
                server = self._servers[fault.target]
                server.command("DEL", *(f"{resource}:queue" for resource in RESOURCES))
            case "calls cut":
                self._servers[fault.target].command("CLIENT", "KILL", "TYPE", "pubsub")
            case mode:
                self._servers.proxies[fault.target].mode = _MODES[mode]
        self._open[fault] = stroke
        self.strokes.append(stroke)

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "server killed":
                self._servers[fault.target].restart()
            case "server stopped":
                self._servers[fault.target].thaw()
            case "client killed":
                self._clients[fault.target].start()
            case "client stopped":
                self._clients[fault.target].go_on()
            case "client cut off" | "client unheard" | "client deaf":
                assert self._network is not None
                self._network.heal(fault.target)
            case "delay":
                self._servers.proxies[fault.target].delay = 0
            case "cut" | "queues lost" | "calls cut":
                pass
            case _:
                self._servers.proxies[fault.target].mode = "pass"
        self._open.pop(fault).ends = time.monotonic_ns()


_MODES: dict[str, Mode] = {
    mode.replace("_", " "): mode for mode in get_args(Mode) if mode.replace("_", " ") in SLOTS
}
