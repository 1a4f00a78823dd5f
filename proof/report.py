"""What the jobs of a check report, and when the whole check fails. Needs no solver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic


@dataclass(frozen=True)
class Report:
    """What one job found: a line to print, the number of questions asked, and what is wrong."""

    line: str
    questions: int
    seconds: float
    wrong: list[str]
    undecided: int = 0
    """How many questions the second solver could not answer in time."""


def report(reports: Iterable[Report], wrong: Iterable[str] = ()) -> int:
    """Prints the reports as they come. Returns the number of things that are wrong, with those that
    were `wrong` before."""
    began, questions, undecided, found = monotonic(), 0, 0, list(wrong)
    for one in reports:
        questions += one.questions
        undecided += one.undecided
        found += one.wrong
        print(f"{one.seconds:6.1f} s {one.questions:4} {one.line}", flush=True)
    if not questions:
        found.append("no question was asked")
    if undecided * 100 > questions:
        found.append(f"{undecided:,} of {questions:,} questions are undecided, more than 1 %")
    print(*found, sep="\n")
    state = "NOT PROVED" if found else "proved"
    print(f"{state}: {questions:,} questions in {monotonic() - began:.0f} s, {len(found)} wrong")
    return len(found)
