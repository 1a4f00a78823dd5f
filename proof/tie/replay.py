"""Replays the steps of a simulated run as transitions of the proof.

Each step that the code reports becomes one transition, or several. A condition that does not hold
is an error, as is a state of a node that differs from the proof's, and a step without a transition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from proof.state import ATTEMPT, CLIENT, EXTENSION, NODE, RESOURCE, State
from proof.tie.tables import Changes, Focus, commit, state
from proof.tie.trace import World
from proof.tie.units import EPOCH, FAST_BITS, MICROSECOND, NANOSECOND, RATE_BITS, ROUNDING
from proof.transitions import TRANSITIONS

UPTIME_ERROR = 1_000_000_000
FENCE_WINDOW = 2_000_000_000
FENCE_MEMORY = 60_000_000_000
STARTED = 1_000_000_000_000_000
"""How long each node was up before the run, in nanoseconds."""

SLACK = MICROSECOND
"""The proof's keys expire earlier than the code's by this, to allow for rounding."""

TICKS = 16
"""Of so many advances of the clocks, the conditions of one are evaluated. Clocks are linear."""


class Refused(Exception):  # noqa: N818
    """A step of the code is no step of the proof."""


class Replay:
    """The state of the proof while a run is replayed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.focus = Focus()
        self.time = 0
        self.ticked = 0
        self.advances = 0
        self.attempts: dict[str, int] = {}
        self.tokens: list[str] = []
        self.resources: list[frozenset[str]] = []
        self.shared: list[frozenset[str]] = []
        """For each attempt, the resources for which it is shared."""
        self.slots: dict[str, tuple[str, int]] = {}
        """For each resource: its semaphore, and the number of its slot."""
        self.keys: dict[tuple[str, int], set[str]] = {}
        """The resources that rounds have named for each slot: one, if the code is right."""
        self.limits: dict[int, int] = {}
        self.clients: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        self.upgrades: set[int] = set()
        self.won: dict[int, tuple[int, int]] = {}
        """For each upgrade whose round was won: its fence and its validity end."""
        self.read: set[tuple[int, str]] = set()
        """The nodes and resources where readers are stored, and not one token."""
        self.settled: dict[int, frozenset[int]] = {}
        """For each lease that was detached: the nodes that may vote on an adoption."""
        self.ttls: dict[int, int] = {}
        self.validities: dict[int, int] = {}
        self.extensions: dict[tuple[int, int, int], list[int]] = {}
        self.leases: list[int] = []
        self.extension_ttls: list[int] = []
        self.extension_validities: list[int] = []
        self.batches: dict[int, list[tuple[int, int, int]]] = {}
        self.boots: dict[str, int] = {}
        self.starts = [0] * len(world.nodes)
        self.holders: dict[tuple[int, str], set[int]] = {}
        self.votes: dict[int, dict[int, int]] = {}
        self.raised: dict[int, set[int]] = {}
        self.open: set[int] = set()
        self.confirmations: dict[int, set[int]] = {}
        self.transitions = 0
        self.observer: Callable[[Replay, str], None] = lambda replay, name: None
        self.nodes = range(len(world.nodes))
        self.s = self._initial()

    # The state

    def _initial(self) -> State:
        world, scale = self.world, self.world.fastest << RATE_BITS
        boot = -(STARTED * NANOSECOND)
        values: dict[str, Any] = {
            "member": lambda node, nodes: node in nodes,
            "majority": lambda nodes: 2 * len(nodes) > len(world.nodes),
            "client": self.clients.__getitem__,
            "uses": lambda a, resource: resource in self.resources[a],
            "writer": lambda a, resource: resource not in self.shared[a],
            "excludes": lambda a, b: bool(self._excluded(a, b)),
            "common": lambda a, b: min(self._excluded(a, b), default=""),
            "first": lambda a: min(self.resources[a]),
            "semaphore": lambda resource: self.slots[resource][0],
            "slot": lambda resource: self.slots[resource][1],
            "limit": self.limits.__getitem__,
            "ttl": self.ttls.__getitem__,
            "validity": self.validities.__getitem__,
            "lease": self.leases.__getitem__,
            "extension_ttl": self.extension_ttls.__getitem__,
            "extension_validity": self.extension_validities.__getitem__,
            "guarded": world.is_guarded,
            "guard": world.guard * NANOSECOND,
            "wait": lambda client: world.wait * NANOSECOND - ROUNDING,
            "window": FENCE_WINDOW * scale,
            "memory": FENCE_MEMORY * scale,
            "set_back": 0,
            "step": 1000 * scale,
            "lossy": world.is_guarded,
            "spread": world.spread * scale,
            "rewinds": False,
            "adopter": lambda a: a in self.parents and a not in self.upgrades,
            "upgrader": self.upgrades.__contains__,
            # Only of adopters and upgrades, the parent matters.
            "parent": lambda a: self.parents.get(a, 0),
            "settled": lambda node, a: node in self.settled.get(a, ()),
            "now": 0,
            "node_clock": self.node_clock,
            "client_clock": self.client_clock,
            "guard_clock": self.guard_clock,
            "wall": self.wall,
            "wall_top": self.wall,
        }
        s = state(self.focus, values)
        for node in self.nodes:
            s.forgot_at.entries[node,] = boot
            self.boots[f"{node} 0"] = boot
        for table in (s.counter, s.mark):
            table.default = -EPOCH * 1000 * scale
        s.counter_until.default = s.counter.default + FENCE_MEMORY * scale
        return s

    def _excluded(self, a: int, b: int) -> frozenset[str]:
        """Returns the resources of both from which `a` excludes `b`."""
        is_other = a != b
        return (self.resources[a] - self.shared[a]) & self.resources[b] if is_other else frozenset()

    def node_clock(self, node: int) -> int:
        return self.time * self.world.nodes[node].rate << FAST_BITS

    def client_clock(self, client: int) -> int:
        return self.time * self.world.clients[client].rate * self.world.fastest

    def guard_clock(self, client: int) -> int:
        return self.time * self.world.clients[client].rate << FAST_BITS

    def wall(self, node: int) -> int:
        micros = self.time // 1000 + self.world.nodes[node].error
        return micros * 1000 * self.world.fastest << RATE_BITS

    def fence(self, fence: int) -> int:
        """Returns a fence in the unit of the proof."""
        return (fence - EPOCH) * 1000 * self.world.fastest << RATE_BITS

    def apply(self, name: str, **arguments: Any) -> None:
        """Applies a transition. `self.focus` must be set."""
        step = TRANSITIONS[name](self.s, **arguments)
        for condition, holds in step.conditions.items():
            if holds is not True:
                raise Refused(f"{name}: it does not hold that {condition}")
        holds_before, holds_after = self.s.values["holds"], step.after.values["holds"]
        if isinstance(holds_after, Changes):
            for (node, resource, attempt), is_held in holds_after.changes.items():
                if holds_before(node, resource, attempt) != is_held:
                    holders = self.holders.setdefault((node, resource), set())
                    (holders.add if is_held else holders.discard)(attempt)
        self.s = commit(step.after)
        self.transitions += 1
        self.observer(self, name)

    def look_at(
        self,
        nodes: Iterable[int] | None = None,
        resources: Iterable[str] = (),
        attempts: Iterable[int] = (),
        extensions: Iterable[int] = (),
        clients: Iterable[int] = (),
    ) -> None:
        """Sets what the next transition looks at, and what it may change."""
        touched = self.nodes if nodes is None else list(nodes)
        things: dict[str, Any] = {
            RESOURCE: list(resources),
            ATTEMPT: list(attempts),
            EXTENSION: list(extensions),
            CLIENT: list(clients),
        }
        self.focus.things = {NODE: self.nodes, **things}
        self.focus.touched = {NODE: touched, **things}

    def around(self, node: int, attempt: int) -> None:
        """Looks at an attempt at a node, at its parent, and at whatever has its keys there. Of
        these, a step changes the attempt and its parent only."""
        resources = self.resources[attempt]
        own = {attempt, self.parents.get(attempt, attempt)}
        others = (self.holders.get((node, resource), set()) for resource in resources)
        attempts = own.union(*others)
        self.look_at([node], resources, attempts, clients=[self.clients[attempt]])
        self.focus.touched = {**self.focus.touched, ATTEMPT: list(own)}

    def only(self, attempt: int) -> None:
        """Looks at an attempt, at all nodes."""
        self.look_at(None, self.resources[attempt], [attempt], clients=[self.clients[attempt]])

    # Time

    def advance(self, time: int) -> None:
        """Moves all clocks to a true time, in nanoseconds. They are linear, so not every `tick` is
        evaluated."""
        if time < self.time:
            raise Refused("time went back")
        if time == self.time:
            return
        self.advances += 1
        if self.advances % TICKS == 0:
            self.tick(time)
        self.time = time
        self.s = self.s.but(now=time * self.world.fastest << RATE_BITS)

    def tick(self, time: int) -> None:
        """Evaluates the transition from the last tick to this time."""
        clocks = ("node_clock", "client_clock", "guard_clock", "wall", "wall_top", "now")
        shown: dict[int, dict[str, Any]] = {}
        after = self.time
        for moment in (self.ticked, time):
            self.time = moment
            readings = {
                clock: {
                    thing: getattr(self, clock.replace("_top", ""))(thing)
                    for thing in (self.nodes if clock[0] in "nw" else self.world.clients)
                }
                for clock in clocks[:-1]
            }
            shown[moment] = {clock: each.__getitem__ for clock, each in readings.items()}
            shown[moment]["now"] = moment * self.world.fastest << RATE_BITS
        self.time = after
        old, new = shown[self.ticked], shown[time]
        self.look_at(clients=self.world.clients, attempts=self.open_attempts())
        before = State({**self.s.values, **old}, self.s.quantify)
        step = TRANSITIONS["tick"](
            before,
            now=new["now"],
            node_clocks=new["node_clock"],
            client_clocks=new["client_clock"],
            guard_clocks=new["guard_clock"],
            walls=new["wall"],
        )
        for condition, holds in step.conditions.items():
            if holds is not True:
                raise Refused(f"tick: it does not hold that {condition}")
        self.ticked = time
        self.transitions += 1

    def open_attempts(self) -> list[int]:
        """The attempts that are not decided."""
        self.open = {a for a in self.open if not self.s.won(a) and not self.s.over(a)}
        return list(self.open)

    # Names

    def attempt(self, token: str) -> int:
        """Returns the attempt with this token."""
        try:
            return self.attempts[token]
        except KeyError:
            raise Refused(f"no round has begun with the token {token[:8]}") from None

    def name(self, attempt: int) -> str:
        """Returns the name of an attempt in messages."""
        return self.tokens[attempt][:8]
