"""Evaluates the invariant, the properties and the axioms on the state of a replay.

The proof has shown that every transition keeps the invariant, so this cannot fail while all
conditions hold: unless the proof, the replay or an assumption is wrong. That is why it is done.
After some wins, extensions and other steps, it looks at the attempts that matter there. At the end
of a run, and after some steps, it looks at many more.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from proof.state import ATTEMPT, CLIENT, EXTENSION, NODE, NODES, RESOURCE
from proof.systems import BASE, EXCLUSION, GUARD, KEPT, System
from proof.tie.replay import Refused, Replay

DECISIONS = ("win", "extend", "forget")
DECISIONS_EVERY = 8
NEAR_EVERY = 200
"""Of so many decisions, and of so many steps, the conjuncts are evaluated after one."""

FAR_EVERY = 5_000
"""Of so many steps, the conjuncts are evaluated on many attempts after one."""

FAR = 12
"""How many of the latest attempts and extensions are then looked at."""

HELD = 40
"""How many of the latest attempts that have keys are then looked at. The time grows with the
square."""

HELD_NEAR = 16
"""How many of them are looked at after other steps. There may be hundreds of readers."""

FENCES_NEED_GUARD = "the guard exceeds the differences between wall clocks, if counters can be lost"


def system(replay: Replay) -> System:
    """Returns the system that a run belongs to."""
    if not replay.world.is_guarded:
        return KEPT
    if GUARD.axioms(replay.s)[FENCES_NEED_GUARD] is True:
        return GUARD
    # The guard of some seeds is too short for fences, on purpose.
    dropped = frozenset([FENCES_NEED_GUARD])
    return replace(GUARD, invariant=BASE, properties=EXCLUSION, dropped=dropped)


class Observer:
    """Evaluates the conjuncts while a run is replayed."""

    def __init__(self, replay: Replay) -> None:
        replay.look_at()
        replay.focus.things[NODES] = []
        self.system = system(replay)
        self.steps = 0
        self.decisions = 0
        self.evaluated = 0
        for name, holds in self.system.initial(replay.s).items():
            if holds is not True:
                raise Refused(f"the beginning: it does not hold that {name}")

    def __call__(self, replay: Replay, name: str) -> None:
        """Is called after each transition."""
        self.steps += 1
        if self.steps % FAR_EVERY == 0:
            self.far(replay)
            return
        self.decisions += name in DECISIONS
        is_decision = name in DECISIONS and self.decisions % DECISIONS_EVERY == 0
        if is_decision or self.steps % NEAR_EVERY == 0:
            self.near(replay)

    def near(self, replay: Replay) -> None:
        """Evaluates the conjuncts on the attempts that the step may change, the latest that have
        keys of the same resources on any node, and the latest lease."""
        things, touched = replay.focus.things, replay.focus.touched
        resources = set(things[RESOURCE])
        holders = (held for (_, resource), held in replay.holders.items() if resource in resources)
        attempts = {
            *touched[ATTEMPT],
            *sorted(set().union(*holders))[-HELD_NEAR:],
            *replay.leases[-1:],
        }
        self.evaluate(replay, attempts, set(things[EXTENSION]), resources)

    def far(self, replay: Replay) -> None:
        """Evaluates the conjuncts on the latest attempts that have keys, and the latest others."""
        latest = islice(reversed(range(len(replay.tokens))), FAR)
        won = islice((a for a in reversed(range(len(replay.tokens))) if replay.s.won(a)), FAR)
        held = sorted({a for held in replay.holders.values() for a in held})[-HELD:]
        attempts = {*latest, *won, *held}
        extensions = range(max(0, len(replay.leases) - FAR), len(replay.leases))
        resources = {resource for a in attempts for resource in replay.resources[a]}
        self.evaluate(replay, attempts, set(extensions), resources)

    def evaluate(
        self, replay: Replay, attempts: set[int], extensions: set[int], resources: set[str]
    ) -> None:
        """Evaluates axioms, invariant and properties, with all nodes and these things."""
        before = dict(replay.focus.things)
        attempts |= {replay.leases[extension] for extension in extensions}
        resources |= {resource for a in attempts for resource in replay.resources[a]}
        replay.focus.things = {
            NODE: replay.nodes,
            RESOURCE: sorted(resources),
            ATTEMPT: sorted(attempts),
            EXTENSION: sorted(extensions),
            CLIENT: sorted({replay.clients[a] for a in attempts}),
            NODES: list({replay.s.keepers(a) for a in attempts if replay.s.won(a)}),
        }
        for name, holds in self.system.axioms(replay.s).items():
            if holds is not True:
                raise Refused(f"axiom: it does not hold that {name}")
        for conjunct in (*self.system.invariant, *self.system.properties):
            if conjunct(replay.s) is not True:
                raise Refused(f"it does not hold that {conjunct.__name__.replace('_', ' ')}")
        self.evaluated += 1
        replay.focus.things = before
