"""What a deliberate error is: see `controls.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proof import properties
from proof.runs import violates
from proof.systems import Formula, System

NO_EXCLUSION = violates(properties.exclusion)


@dataclass(frozen=True)
class Control:
    """A deliberate error.

    `fails` has, for each transition whose proof fails, the conjuncts that the solver refutes. It
    proves all others. `property` stands for the properties.
    """

    name: str
    meaning: str
    system: System
    change: Callable[[System], System]
    fails: Mapping[str, set[str]]
    run: str = ""
    goal: Formula = NO_EXCLUSION
    sizes: Mapping[str, int] = field(default_factory=dict)

    def broken(self) -> System:
        """Returns the system with the error."""
        return self.change(self.system)
