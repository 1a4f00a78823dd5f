"""Compares this checkout with an earlier one: `make bench-gate BEFORE=DIRECTORY`.

Both must be compiled as they are published. They run in turns on the same nodes, so that only the
ratios of their figures matter, and not the machine. A form that is slower in two measurements fails
the gate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median

from bench.contender import Contender
from bench.contenders import OWN
from bench.group import Group
from bench.performance.cycles import MANY, most_in_flight
from bench.progress import progress
from bench.settings import ROOT, ROUNDS
from bench.turns import Lane, rounds, start

LIMIT = 1.2
"""How many times as slow a form may be. It must exceed the differences between runs of one code."""
BEFORE = ", before"
"""Follows the names of the contenders of the earlier checkout."""


@dataclass(frozen=True)
class Comparison:
    """One figure of one form, relative to that of the earlier checkout: above 1 is slower.
    `ratio` is None if the form fails in the earlier checkout."""

    form: str
    what: str
    ratio: float | None

    @property
    def name(self) -> str:
        return f"{self.form}, {self.what}"

    @property
    def is_slower(self) -> bool:
        return self.ratio is not None and self.ratio > LIMIT


def earlier(contender: Contender, checkout: Path) -> Contender:
    """Returns the same contender in another checkout: its program, or its Python and packages."""
    python = f"{checkout}/.venv/bin/python"
    command = [
        python if word == sys.executable else word.replace(f"{ROOT}/", f"{checkout}/")
        for word in contender.command
    ]
    return replace(contender, name=contender.name + BEFORE, command=command)


def compare(lanes: Iterable[Lane], level: str) -> Iterator[Comparison]:
    """Yields the comparisons of all forms. A form that fails only in this checkout is slower."""
    by_name = {lane.contender.name: lane for lane in lanes}
    for form, after in by_name.items():
        if form.endswith(BEFORE):
            continue
        before = by_name[form + BEFORE]
        if before.is_out or after.is_out:
            yield Comparison(form, level, None if before.is_out else inf)
            continue
        yield Comparison(form, f"time of a cycle, {level}", times(before.rates, after.rates))
        if after.counts_cpu:
            cpu = times(after.server_cpu, before.server_cpu)
            yield Comparison(form, f"CPU time of a server, {level}", cpu)


def times(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """Returns how many times as large the first figures are, which were measured in the same
    rounds. A slower machine affects both figures of a round."""
    return median(one / other for one, other in zip(larger, smaller, strict=False))


def measure(contenders: Sequence[Contender]) -> list[Comparison]:
    """Measures both checkouts: one cycle at a time, and many in flight."""
    found: list[Comparison] = []
    for concurrency in (1, MANY):
        level = f"{concurrency} in flight"
        able = [each for each in contenders if concurrency <= most_in_flight(each)]
        with ExitStack() as stack:
            lanes = start(stack, able, Group(stack), concurrency=concurrency)
            rounds(level, lanes, 4 * ROUNDS)
            found += compare(lanes, level)
    progress("done\n")
    return found


def show(comparisons: Sequence[Comparison]) -> None:
    """Prints one line for each comparison."""
    for each in comparisons:
        figure = "not measured" if each.ratio is None else f"{each.ratio:.2f} times"
        print(f"{each.name:70}{figure}{'  SLOWER' if each.is_slower else ''}")


def main() -> None:
    before = Path(sys.argv[1]).resolve()
    contenders = [*OWN.values(), *(earlier(each, before) for each in OWN.values())]
    first = measure(contenders)
    show(first)
    if not any(each.is_slower for each in first):
        return
    print(f"slower than {LIMIT} times: measuring again")
    second = measure(contenders)
    show(second)
    again = {each.name for each in first if each.is_slower}
    if slower := [each.name for each in second if each.is_slower and each.name in again]:
        raise SystemExit("slower in both measurements: " + "; ".join(slower))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
