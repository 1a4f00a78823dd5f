"""What is proved under which assumptions: three systems of the same transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proof import properties
from proof.assumptions import axioms, initial
from proof.invariant import fences, guard, lock, modes, semaphores, transfer
from proof.logic import Term, negated
from proof.state import State
from proof.step import Transition
from proof.transitions import TRANSITIONS

Formula = Callable[[State], Term]


@dataclass(frozen=True)
class System:
    """Assumptions, transitions, an invariant, and the properties that follow."""

    name: str
    mode: Callable[[State], dict[str, Term]]
    """Assumptions of this system only."""
    invariant: tuple[Formula, ...]
    properties: tuple[Formula, ...]
    transitions: Mapping[str, Transition] = field(default_factory=lambda: TRANSITIONS)
    dropped: frozenset[str] = frozenset()
    """Axioms that are not assumed."""

    def axioms(self, s: State) -> dict[str, Term]:
        """Returns what is assumed of the constants, by name."""
        names = axioms(s).keys()
        if not self.dropped <= names:
            raise KeyError(f"no axioms: {self.dropped - names}")
        kept = {name: term for name, term in axioms(s).items() if name not in self.dropped}
        return {**kept, **self.mode(s)}

    def initial(self, s: State) -> dict[str, Term]:
        """Returns what holds at the beginning, by name."""
        return initial(s)


EXCLUSION = (
    properties.exclusion,
    properties.usual_slots,
    properties.one_valid_adopter,
    properties.parents_end,
    properties.one_adopter,
)
FENCES = (
    properties.fences,
    properties.unique_fences,
    properties.valid_fence,
    properties.adopters_fence,
)
BASE = (
    *lock.CONJUNCTS,
    *guard.CONJUNCTS,
    *transfer.CONJUNCTS,
    *modes.CONJUNCTS,
    *semaphores.CONJUNCTS,
)

MEMORY = System(
    "assumption (c)",
    lambda s: {"the guard is off": negated(s.guarded)},
    BASE,
    EXCLUSION,
)
"""Without the restart guard, and nothing about fences: a majority remembers each valid lease."""

GUARD = System(
    "restart guard",
    lambda s: {"the guard is on": s.guarded},
    (*BASE, *fences.CONJUNCTS),
    (*EXCLUSION, *FENCES),
)
"""With the restart guard, whatever nodes forget; fences too."""

LOSSES = ("forget", "set_clock")

KEPT = System(
    "no node forgets",
    lambda s: {"the guard is off": negated(s.guarded), "no counter is lost": negated(s.lossy)},
    (*BASE, guard.trusted_grants_are_promises, *fences.CONJUNCTS),
    (*EXCLUSION, *FENCES),
    {name: step for name, step in TRANSITIONS.items() if name not in LOSSES},
)
"""Without the restart guard, if no node loses memory: fences too."""

SYSTEMS = {system.name: system for system in (MEMORY, KEPT, GUARD)}
