"""The state of the lock: every variable and every constant, each with a sentence.

`State` is the same for both meanings (see `logic.py`): its fields are functions of nodes, attempts
and so on, made by `symbolic.py` from terms of the solver or by `concrete.py` from dictionaries.

Time has one unit. `now` is true time, as counted by the fastest clock that assumption (b) allows:
(1 + e) times true time, if every clock is within e of it. Then no clock of a node advances faster
than `now`, and a client's clock, multiplied by (1 + e) / (1 - e), advances no slower. So e itself
occurs only in the lemmas of `assumptions.py`. The nodes' wall clocks and the fences are counted in
the same unit, from the same origin: only their order matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proof.logic import Function, Term, both, either, implies, negated

NODE, CLIENT, ATTEMPT, EXTENSION, RESOURCE, SEMAPHORE, NODES = (
    "Node",
    "Client",
    "Attempt",
    "Extension",
    "Resource",
    "Semaphore",
    "Nodes",
)
"""The sorts of things: of each, there may be any number. `Nodes` are sets of nodes."""

TIME, TRUTH, NUMBER = "Time", "Truth", "Number"
"""The kinds of values, besides the sorts. Fences are times; `Number` counts."""

VARIABLES = {
    **dict.fromkeys(["node", "other"], NODE),
    **dict.fromkeys(["client"], CLIENT),
    **dict.fromkeys(["a", "b", "c"], ATTEMPT),
    **dict.fromkeys(["x"], EXTENSION),
    **dict.fromkeys(["resource", "second"], RESOURCE),
    **dict.fromkeys(["some", "others"], NODES),
}
"""The sort of each variable that `State.every` may bind, by name."""


@dataclass(frozen=True)
class Field:
    """A constant or a variable of the state: a function from `keys` to `value`."""

    keys: tuple[str, ...]
    value: str
    meaning: str


def _of(*signature: str, meaning: str) -> Field:
    return Field(signature[:-1], signature[-1], meaning)


CONSTANTS: Mapping[str, Field] = {
    "member": _of(NODE, NODES, TRUTH, meaning="The node is in the set."),
    "majority": _of(NODES, TRUTH, meaning="The set is a quorum. Any two of them share a node."),
    "client": _of(ATTEMPT, CLIENT, meaning="The client that makes the attempt."),
    "uses": _of(ATTEMPT, RESOURCE, TRUTH, meaning="The attempt is for the resource."),
    "writer": _of(
        ATTEMPT, RESOURCE, TRUTH, meaning="The attempt is exclusive there, not in shared mode."
    ),
    "excludes": _of(
        ATTEMPT, ATTEMPT, TRUTH, meaning="The attempt is exclusive for a resource of the other one."
    ),
    "common": _of(ATTEMPT, ATTEMPT, RESOURCE, meaning="Such a resource."),
    "first": _of(ATTEMPT, RESOURCE, meaning="One of the resources that the attempt is for."),
    "semaphore": _of(
        RESOURCE,
        SEMAPHORE,
        meaning="The semaphore that the resource is a slot of. A lock is one with a single slot.",
    ),
    "slot": _of(RESOURCE, NUMBER, meaning="The number of the slot."),
    "limit": _of(ATTEMPT, NUMBER, meaning="The semaphore's limit, as the attempt's client has it."),
    "ttl": _of(ATTEMPT, TIME, meaning="The time for which nodes keep the key."),
    "validity": _of(
        ATTEMPT, TIME, meaning="The ttl less the drift, in the unit of `client_clock`."
    ),
    "lease": _of(EXTENSION, ATTEMPT, meaning="The lease that the extension is for."),
    "extension_ttl": _of(EXTENSION, TIME, meaning="The ttl that EXTEND sets."),
    "extension_validity": _of(
        EXTENSION, TIME, meaning="That ttl less the drift, in the unit of `client_clock`."
    ),
    "guarded": _of(TRUTH, meaning="The restart guard is on. If not, assumption (c) is made."),
    "guard": _of(
        TIME, meaning="What every guard ensures between a loss of memory and a counted round."
    ),
    "wait": _of(CLIENT, TIME, meaning="What the client's guard waits by the client's clock."),
    "window": _of(TIME, meaning="How far a proposed fence may be from a node's wall clock."),
    "memory": _of(TIME, meaning="How long a node keeps a fence counter at least."),
    "set_back": _of(TIME, meaning="How far a node's wall clock is set back at most."),
    "step": _of(TIME, meaning="The distance of one fence to the next: a microsecond."),
    "lossy": _of(TRUTH, meaning="A node that loses its memory may lose its fence counters too."),
    "spread": _of(
        TIME, meaning="How far a node's wall clock is from true time at most, if `lossy`."
    ),
    "rewinds": _of(
        TRUTH, meaning="A node that loses its last writes may lose those of a hand-over too."
    ),
    "adopter": _of(ATTEMPT, TRUTH, meaning="The attempt takes over another lease (TRANSFER)."),
    "upgrader": _of(ATTEMPT, TRUTH, meaning="The attempt is to replace a shared lease."),
    "parent": _of(
        ATTEMPT, ATTEMPT, meaning="The lease that an adopter takes over or an upgrade replaces."
    ),
    "settled": _of(
        NODE,
        ATTEMPT,
        TRUTH,
        meaning="At the detach, the node had answered all requests that set the lease's keys.",
    ),
}

STATE: Mapping[str, Field] = {
    # Clocks
    "now": _of(TIME, meaning="True time, as the fastest allowed clock counts it."),
    "node_clock": _of(NODE, TIME, meaning="The clock by which the node expires keys."),
    "client_clock": _of(
        CLIENT, TIME, meaning="The client's clock, scaled up: never slower than `now`."
    ),
    "guard_clock": _of(CLIENT, TIME, meaning="The client's clock as it is: not faster than `now`."),
    "wall": _of(NODE, TIME, meaning="The node's wall clock."),
    "wall_top": _of(NODE, TIME, meaning="The largest reading of the node's wall clock so far."),
    # Rounds
    "sent": _of(ATTEMPT, TRUTH, meaning="The round has begun: ACQUIRE may be under way."),
    "sent_at": _of(ATTEMPT, TIME, meaning="When the round began, in true time."),
    "sent_clock": _of(ATTEMPT, TIME, meaning="When it began, by `client_clock`."),
    "sent_guard": _of(ATTEMPT, TIME, meaning="When it began, by `guard_clock`."),
    "granted": _of(NODE, ATTEMPT, TRUTH, meaning="The node granted the attempt at some time."),
    "granted_since": _of(
        NODE, ATTEMPT, TIME, meaning="When the node had last lost memory as it granted."
    ),
    "counted": _of(NODE, ATTEMPT, TRUTH, meaning="The client counts the node's grant."),
    "won": _of(ATTEMPT, TRUTH, meaning="The round was won: the attempt is a lease."),
    "over": _of(
        ATTEMPT, TRUTH, meaning="The client gave it up: a lost round, or a lease that ended."
    ),
    "end": _of(ATTEMPT, TIME, meaning="The validity end, by `client_clock`."),
    "end_at": _of(ATTEMPT, TIME, meaning="A true time that is not before the validity end."),
    # Keys and promises
    "holds": _of(NODE, RESOURCE, ATTEMPT, TRUTH, meaning="The resource's key has its token."),
    "expires": _of(NODE, RESOURCE, ATTEMPT, TIME, meaning="When the key expires, by node_clock."),
    "promised": _of(
        NODE, ATTEMPT, TRUTH, meaning="The node promised to keep the keys: its vote may count."
    ),
    "promise": _of(NODE, ATTEMPT, TIME, meaning="Until when it promised, in true time."),
    "keepers": _of(ATTEMPT, NODES, meaning="A majority whose promises make the lease valid."),
    "stand_in": _of(
        NODE, ATTEMPT, ATTEMPT, meaning="Whose keys fulfil the promise: its own, or an upgrade's."
    ),
    # Extensions
    "asked": _of(EXTENSION, TRUTH, meaning="The extension has begun: EXTEND may be under way."),
    "asked_at": _of(EXTENSION, TIME, meaning="When it began, in true time."),
    "asked_clock": _of(EXTENSION, TIME, meaning="When it began, by `client_clock`."),
    "asked_guard": _of(EXTENSION, TIME, meaning="When it began, by `guard_clock`."),
    "applied": _of(NODE, EXTENSION, TRUTH, meaning="The node applied EXTEND at some time."),
    "applied_since": _of(
        NODE, EXTENSION, TIME, meaning="When the node had last lost memory as it applied it."
    ),
    "confirmed": _of(
        NODE, EXTENSION, TRUTH, meaning="The node's promise was prolonged: its answer may count."
    ),
    "acknowledged": _of(NODE, EXTENSION, TRUTH, meaning="The client counts the confirmation."),
    # Modes
    "downgraded": _of(ATTEMPT, TRUTH, meaning="For its holder, the lease is shared by now."),
    "yields": _of(NODE, ATTEMPT, TRUTH, meaning="The node applied DOWNGRADE: it lets readers in."),
    # Memory and the restart guard
    "forgot_at": _of(NODE, TIME, meaning="When the node last lost memory, in true time."),
    "looked": _of(CLIENT, NODE, TRUTH, meaning="The client has examined the node."),
    "reports": _of(CLIENT, NODE, TRUTH, meaning="The last report named the node's memory."),
    "seen": _of(CLIENT, NODE, TIME, meaning="When the memory last reported began."),
    "newest": _of(CLIENT, NODE, TIME, meaning="When the newest memory ever reported began."),
    "counts_from": _of(
        CLIENT, NODE, TIME, meaning="From when rounds count the node, by `guard_clock`."
    ),
    # Fences
    "counter": _of(NODE, RESOURCE, TIME, meaning="The last fence that the node stores."),
    "counter_until": _of(
        NODE, RESOURCE, TIME, meaning="Until when it stores it at least, by the wall clock."
    ),
    "mark": _of(NODE, RESOURCE, TIME, meaning="The largest fence that the node ever stored."),
    "vote_fence": _of(NODE, ATTEMPT, TIME, meaning="The fence that the node granted."),
    "trusted": _of(NODE, ATTEMPT, TRUTH, meaning="The node granted it, and its vote may count."),
    "fixed": _of(ATTEMPT, TRUTH, meaning="The attempt's fence is decided."),
    "fence": _of(ATTEMPT, TIME, meaning="The attempt's fence, once it is decided."),
    "weighed": _of(NODE, ATTEMPT, TRUTH, meaning="The node's vote was counted into the fence."),
    "stored": _of(NODE, ATTEMPT, TRUTH, meaning="The node stored the fence before the win."),
    "storers": _of(ATTEMPT, NODES, meaning="A majority that stored the fence before the win."),
    "place": _of(ATTEMPT, NUMBER, meaning="The lease's place in the order in which leases won."),
    "wins": _of(NUMBER, meaning="How many rounds were won so far."),
    # Hand-over
    "swapped": _of(NODE, ATTEMPT, TRUTH, meaning="The node swapped the parent's keys for these."),
    "swappers": _of(ATTEMPT, NODES, meaning="The majority whose votes the adopter won with."),
}

FIELDS: Mapping[str, Field] = {**CONSTANTS, **STATE}


class State:
    """The values of all fields, as attributes. A field without keys is a value, any other is a
    function."""

    def __init__(
        self, values: Mapping[str, Any], quantify: Callable[[list[str], Function], Term]
    ) -> None:
        """`quantify` tells whether a body holds for all things of the given sorts."""
        self.values = values
        self.quantify = quantify
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """For type checkers, which do not see the fields. Python calls it for unknown names."""
        raise AttributeError(name)

    def but(self, **changes: Any) -> State:
        """Returns the state with other values for some fields."""
        unknown = changes.keys() - STATE.keys()
        if unknown:
            raise KeyError(f"no variable of the state: {unknown}")
        return State({**self.values, **changes}, self.quantify)

    def every(self, body: Function) -> Term:
        """Whether `body` holds for all things. The names of its parameters tell their sorts."""
        code = body.__code__
        names = code.co_varnames[: code.co_argcount]
        return self.quantify([VARIABLES[name] for name in names], body)

    def conflict(self, a: Term, b: Term) -> Term:
        """Whether two attempts exclude each other, in the modes in which they began."""
        return either(self.excludes(a, b), self.excludes(b, a))

    def contend(self, a: Term, b: Term) -> Term:
        """Whether two attempts exclude each other, in the modes that they have now."""
        return either(
            both(self.excludes(a, b), negated(self.downgraded(a))),
            both(self.excludes(b, a), negated(self.downgraded(b))),
        )

    def writes(self, attempt: Term, resource: Term) -> Term:
        """Whether the attempt is exclusive for a resource, for its holder."""
        return both(self.writer(attempt, resource), negated(self.downgraded(attempt)))

    def locks(self, node: Term, resource: Term, attempt: Term) -> Term:
        """Whether the attempt is exclusive for a resource, for a node."""
        return both(self.writer(attempt, resource), negated(self.yields(node, attempt)))

    def is_in_limit(self, attempt: Term) -> Term:
        """Whether the numbers of the attempt's slots are below its limit."""
        return self.every(
            lambda resource: implies(
                self.uses(attempt, resource),
                both(self.slot(resource) >= 0, self.slot(resource) < self.limit(attempt)),
            )
        )

    def has_usual_keys(self, attempt: Term) -> Term:
        """Whether no slot of the attempt has another key, which other clients might use for it."""
        return self.every(
            lambda resource, second: implies(
                both(
                    self.uses(attempt, resource),
                    self.semaphore(resource) == self.semaphore(second),
                    self.slot(resource) == self.slot(second),
                ),
                resource == second,
            )
        )

    def is_past(self, attempt: Term) -> Term:
        """Whether the validity end that a round may win has passed."""
        end = self.sent_clock(attempt) + self.validity(attempt)
        return self.client_clock(self.client(attempt)) >= end

    def valid(self, attempt: Term) -> Term:
        """Whether the attempt is a valid lease, as its holder judges it."""
        is_ahead = self.client_clock(self.client(attempt)) < self.end(attempt)
        return both(self.won(attempt), negated(self.over(attempt)), is_ahead)
