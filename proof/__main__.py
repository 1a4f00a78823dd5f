"""Checks the whole proof: `make proof`.

    python -m proof [--cvc5] [--show RUN]

Exits with status 1 if anything is not as it must be: a claim that is not proved, a control that
does not fail exactly where it must, a run that does not exist, or one that must not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import monotonic

from proof.controls import CONTROLS
from proof.jobs import Report, jobs, unreached
from proof.runs import RUNS
from proof.search import broken, search


def show(name: str) -> None:
    """Prints the steps of a run, of `runs.py` or of a control."""
    for it in RUNS:
        if it.name == name:
            found, system = search(it.system, it.words.split(), it.goal, it.sizes), it.system
    for other in CONTROLS:
        if other.name == name:
            system = other.broken()
            found = search(system, other.run.split(), other.goal, other.sizes)
    for number, (word, arguments) in enumerate(found.run.steps if found.run else (), 1):
        plain = {key: value for key, value in arguments.items() if not callable(value)}
        values = (
            f"{key}={sorted(value) if isinstance(value, frozenset) else value}"
            for key, value in plain.items()
        )
        print(f"{number:3} {word} {' '.join(values)}")
    print(*(broken(system, found.run) if found.run else ["no run"]), sep="\n")


def report(reports: Iterable[Report]) -> int:
    """Prints the reports as they come. Returns the number of things that are wrong."""
    began, questions, undecided, wrong = monotonic(), 0, 0, list(unreached())
    for one in reports:
        questions += one.questions
        undecided += one.undecided
        wrong += one.wrong
        print(f"{one.seconds:6.1f} s {one.questions:4} {one.line}", flush=True)
    if undecided * 100 > questions:
        wrong.append(f"{undecided:,} of {questions:,} questions are undecided, more than 1 %")
    print(*wrong, sep="\n")
    state = "NOT PROVED" if wrong else "proved"
    print(f"{state}: {questions:,} questions in {monotonic() - began:.0f} s, {len(wrong)} wrong")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument("--cvc5", action="store_true", help="with the second solver")
    parser.add_argument("--show", metavar="RUN", help="prints the steps of a run or control")
    options = parser.parse_args()
    if options.show:
        show(options.show)
        return 0
    processes = get_context("forkserver")
    processes.set_forkserver_preload(["proof.jobs"])
    with ProcessPoolExecutor(os.cpu_count(), processes, max_tasks_per_child=1) as pool:
        todo = [pool.submit(job, *arguments) for job, arguments in jobs(is_second=options.cvc5)]
        return min(report(one.result() for one in todo), 1)


if __name__ == "__main__":
    sys.exit(main())
