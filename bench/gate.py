"""Compares this checkout with an earlier one: `make bench-gate BEFORE=DIRECTORY`.

Both must be compiled as they are published. They run in turns on the same nodes, so that only the
ratios of their figures matter, and not the machine. A form that is slower in two measurements fails
the gate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from contender import Contender
from group import Group
from parameters import NODES, ROOT, ROUNDS
from progress import progress
from roster import own
from scenarios.in_flight import MANY, levels
from turns import Summary, rounds, start

LIMIT = 1.1
"""How many times as slow a form may be. Two runs of the same code differ by a few percent."""
BEFORE = ", before"
"""Follows the names of the contenders of the earlier checkout."""


@dataclass(frozen=True)
class Comparison:
    """One figure of one form, relative to that of the earlier checkout: above 1 is slower.
    `ratio` is None if the earlier checkout has no such form, or failed."""

    form: str
    what: str
    ratio: float | None

    @property
    def name(self) -> str:
        return f"{self.form}, {self.what}"

    @property
    def is_slower(self) -> bool:
        return self.ratio is not None and self.ratio > LIMIT


def costs(summary: Summary, *, is_rate: bool) -> dict[str, float]:
    """Returns the figures of a summary, each smaller if it is better."""
    if "failure" in summary:
        return {}
    time = {f"time with {MANY} in flight": 1 / summary["rate"]} if is_rate else {}
    one = {} if is_rate else {"time of a cycle": summary["median"]}
    level = f"{MANY} in flight" if is_rate else "one at a time"
    return {**time, **one, f"CPU time of a server, {level}": summary["server cpu per node"]}


def compare(summaries: Mapping[str, Summary], *, is_rate: bool) -> Iterator[Comparison]:
    """Yields the comparisons of all forms. A form that fails only in this checkout is slower."""
    for form, summary in summaries.items():
        if form.endswith(BEFORE):
            continue
        after = costs(summary, is_rate=is_rate)
        before = costs(summaries.get(form + BEFORE, {"failure": "missing"}), is_rate=is_rate)
        for what, cost in before.items():
            yield Comparison(form, what, after[what] / cost if after else float("inf"))
        if not before:
            yield Comparison(form, "all figures", None)


def measure(contenders: list[Contender]) -> list[Comparison]:
    """Measures both checkouts: one cycle at a time, and many in flight."""
    with ExitStack() as stack:
        lanes = start(stack, contenders, Group(stack, NODES))
        rounds("one at a time", lanes, 4 * ROUNDS)
        single = {lane.contender.name: lane.summary() for lane in lanes}
    with ExitStack() as stack:
        able = [each for each in contenders if MANY in levels(each)]
        lanes = start(stack, able, Group(stack, NODES), concurrency=MANY)
        rounds(f"{MANY} in flight", lanes, 4 * ROUNDS)
        many = {lane.contender.name: lane.summary() for lane in lanes}
    progress("done\n")
    return [*compare(single, is_rate=False), *compare(many, is_rate=True)]


def show(comparisons: list[Comparison]) -> None:
    """Prints one line for each comparison."""
    for each in comparisons:
        figure = "not measured" if each.ratio is None else f"{each.ratio:.2f} times"
        print(f"{each.name:70}{figure}{'  SLOWER' if each.is_slower else ''}")


def main() -> None:
    before = Path(sys.argv[1]).resolve()
    contenders = [
        *own(ROOT, sys.executable),
        *own(before, str(before / ".venv" / "bin" / "python"), BEFORE),
    ]
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
