"""Fault injection: a random plan of faults, and its execution.

The same seed gives the same plan. The effects still differ, because the timing of real processes
differs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import get_args

from chaos.clients import Client, Clients
from chaos.daemon import Daemon
from chaos.history import InjectedFault
from chaos.network import Network
from proxy import Mode
from servers import Servers

RESOURCES = ["orders", "stock", "report"]
LEADER = "leader"
POOL = "pool"
"""The resource of the semaphore."""
"""The resource whose leader the clients elect."""

SHORT = (0.02, 0.3)
LONG = (0.3, 3.0)
"""The minimum and maximum duration, in seconds, of a short and of a long fault."""

SERVER_FAULTS = {"server killed": "process", "server stopped": "process"}
QUEUE_FAULTS = {"queues lost": "process", "subscriptions cut": "process"}
"""Faults that make a server lose its queues of waiters or the connections for notifications."""
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
    "client requests lost": "network",
    "client replies lost": "network",
}
"""Faults that need network namespaces."""
CLIENT_FAULTS = PROCESS_FAULTS | NETWORK_FAULTS

DAEMON_FAULTS = {
    "daemon killed": "daemon",
    "daemon stopped": "daemon",
    "daemon drained": "daemon",
}
"""Faults of the daemon, in runs that have one. When it is drained, the next one starts soon."""

LAYERS = SERVER_FAULTS | QUEUE_FAULTS | PROXY_FAULTS | CLIENT_FAULTS | DAEMON_FAULTS
"""All kinds of faults, with their layers. Two faults of the same layer never hit one target at the
same time."""

HOLDING = 0.8
"""The probability that a fault of a client process waits until the client holds a lease."""
HOLDER_TIMEOUT = 0.5
"""The maximum time, in seconds, that a fault waits for a client to hold a lease."""

MOMENTARY = {"cut", *QUEUE_FAULTS}
"""The kinds of faults without a duration."""

MAJORITY = 0.4
"""The probability, in each storm, of each of three events: a fault hits a majority of the nodes, a
majority of the nodes restarts, most clients are killed or stopped."""


@dataclass(frozen=True)
class Fault:
    """A planned fault. Times are in seconds since the start of the storm."""

    kind: str
    target: int
    """The index of the node or client."""
    begins: float
    ends: float
    delay: float
    """The delay in seconds, for faults of the kind "delay"."""
    holding: bool
    """Whether the fault waits, up to HOLDER_TIMEOUT, for the client to hold a lease."""


@dataclass(frozen=True)
class Storm:
    """A burst of faults that may overlap. All of them end within the storm."""

    seconds: float
    faults: tuple[Fault, ...]
    calm: float
    """The minimum time without faults after the storm, in seconds."""


def storms(
    seed: int, nodes: int, clients: int, namespaces: bool, daemon: bool = False
) -> Iterator[Storm]:
    """Yields storms forever. Each kind of fault hits one target, and some also hit a majority."""
    left_out = ({} if namespaces else NETWORK_FAULTS) | ({} if daemon else DAEMON_FAULTS)
    kinds = [kind for kind in LAYERS if kind not in left_out]
    for number in count():
        planner = _Planner(random.Random(f"{seed} {number}"), nodes, clients)
        planner.each_of(kinds)
        if daemon:
            planner.some("daemon killed", 3)
        if planner.random.random() < MAJORITY:
            kinds_of_nodes = [*SERVER_FAULTS, *QUEUE_FAULTS, *PROXY_FAULTS]
            planner.majority(planner.random.choice(kinds_of_nodes), LONG)
        if planner.random.random() < MAJORITY:
            planner.majority("server killed", SHORT)
        if planner.random.random() < MAJORITY:
            planner.majority(planner.random.choice([*PROCESS_FAULTS]), LONG)
        yield planner.storm()


def restarts(seed: int, nodes: int) -> Iterator[Storm]:
    """Yields storms whose only faults are restarts of a majority of the nodes."""
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
                pass  # all targets have a fault of this layer at that time; try another time

    def some(self, kind: str, number: int) -> None:
        """Adds short faults, except those that would hit a target that has another one."""
        for _ in range(number):
            self._add(kind, *self._times(SHORT))

    def majority(self, kind: str, lasting: tuple[float, float]) -> None:
        begins, ends = self._times(lasting)
        all_targets = self._clients if kind in CLIENT_FAULTS else self._nodes
        for _ in range(self.random.randint(all_targets // 2 + 1, all_targets)):
            # Spread the faults over 50 ms: real failures are never exactly simultaneous.
            self._add(kind, begins + self.random.uniform(0, 0.05), ends)

    def storm(self) -> Storm:
        faults = tuple(sorted(self._faults, key=lambda fault: fault.begins))
        return Storm(self._seconds, faults, self.random.uniform(0.5, 2))

    def _times(self, lasting: tuple[float, float]) -> tuple[float, float]:
        lasts = self.random.uniform(*lasting)
        begins = self.random.uniform(0, self._seconds - lasts)
        return begins, begins + lasts

    def _add(self, kind: str, begins: float, ends: float) -> bool:
        """Adds the fault to a random target that has no other fault of the same layer at that time.

        Returns False if every target has one.
        """
        number = self._clients if kind in CLIENT_FAULTS else self._nodes
        number = 1 if kind in DAEMON_FAULTS else number
        busy = {
            fault.target
            for fault in self._faults
            if LAYERS[fault.kind] == LAYERS[kind] and fault.begins <= ends and begins <= fault.ends
        }
        free = [target for target in range(number) if target not in busy]
        if free:
            ends = begins if kind in MOMENTARY else max(begins, ends)
            target, delay = self.random.choice(free), self.random.uniform(0.01, 0.6)
            holding = self.random.random() < HOLDING
            self._faults.append(Fault(kind, target, begins, ends, delay, holding))
        return bool(free)


class Faults:
    """Injects faults into real servers and clients, and records them."""

    def __init__(
        self,
        servers: Servers,
        clients: Clients,
        network: Network | None,
        daemon: Daemon | None = None,
    ) -> None:
        self._daemon = daemon
        self._servers = servers
        self._clients = clients
        self._network = network
        self._active: dict[Fault, InjectedFault] = {}
        self.injected: list[InjectedFault] = []

    def run_storm(self, storm: Storm) -> None:
        """Injects the faults of the storm. When it returns, all of them have ended."""
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
        if fault.holding:
            self._await_holder(fault)
        is_client = fault.kind in CLIENT_FAULTS
        target = self._clients[fault.target].name if is_client else f"node {fault.target + 1}"
        target = "daemon" if fault.kind in DAEMON_FAULTS else target
        now = time.monotonic_ns()
        injected = InjectedFault(fault.kind, target, now, now)
        match fault.kind:
            case "server killed":
                self._servers[fault.target].kill()
            case "server stopped":
                self._servers[fault.target].freeze()
            case "client killed":
                self._clients[fault.target].check_running()
                self._clients[fault.target].kill()
            case "client stopped":
                self._clients[fault.target].stop()
            case "client cut off" | "client requests lost" | "client replies lost" as kind:
                assert self._network is not None
                self._network.lose(
                    fault.target,
                    requests=kind != "client replies lost",
                    replies=kind != "client requests lost",
                )
            case "daemon killed":
                self._the_daemon.kill()
            case "daemon stopped":
                self._the_daemon.stop()
            case "daemon drained":
                # Then it releases the leases that are left.
                until = self._the_daemon.drain()
                for client in self._clients:
                    client.histories[-1].add_action("drained", until)
            case "delay":
                self._servers.proxies[fault.target].delay = fault.delay
            case "cut":
                self._servers.proxies[fault.target].cut()
            case "queues lost":
                server = self._servers[fault.target]
                queues = [f"{{{resource}}}:queue" for resource in [*RESOURCES, LEADER]]
                # Without its index, the server must find out again which slots are free.
                permits = f"{{{POOL}}}:permits"
                server.command("DEL", *queues, f"{permits}:queue", permits)
            case "subscriptions cut":
                self._servers[fault.target].command("CLIENT", "KILL", "TYPE", "pubsub")
            case mode:
                self._servers.proxies[fault.target].mode = _MODES[mode]
        self._active[fault] = injected
        self.injected.append(injected)

    def _await_holder(self, fault: Fault) -> None:
        """Waits, up to HOLDER_TIMEOUT, until the target of the fault holds a lease."""
        holders: list[Client] = []
        if fault.kind in PROCESS_FAULTS:
            holders = [self._clients[fault.target]]
        elif fault.kind in DAEMON_FAULTS:
            holders = [client for client in self._clients if client.uses_daemon]
        deadline = time.monotonic() + HOLDER_TIMEOUT
        while holders and time.monotonic() < deadline:
            if any(client.holds for client in holders):
                return
            time.sleep(0.001)

    @property
    def _the_daemon(self) -> Daemon:
        assert self._daemon is not None
        return self._daemon

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "server killed":
                self._servers[fault.target].restart()
            case "server stopped":
                self._servers[fault.target].thaw()
            case "client killed":
                self._clients[fault.target].start()
            case "client stopped":
                self._clients[fault.target].resume()
            case "client cut off" | "client requests lost" | "client replies lost":
                assert self._network is not None
                self._network.restore(fault.target)
            case "daemon killed" | "daemon drained":
                self._the_daemon.start()
            case "daemon stopped":
                self._the_daemon.resume()
            case "delay":
                self._servers.proxies[fault.target].delay = 0
            case "cut" | "queues lost" | "subscriptions cut":
                pass
            case _:
                self._servers.proxies[fault.target].mode = "pass"
        self._active.pop(fault).ends = time.monotonic_ns()


_MODES: dict[str, Mode] = {
    mode.replace("_", " "): mode for mode in get_args(Mode) if mode.replace("_", " ") in LAYERS
}
