"""Checks the whole proof: `make proof`.

    python -m proof [--cvc5] [--show RUN]

Exits with status 1 if anything is not as it must be: a claim that is not proved, a control that
does not fail exactly where it must, a run that does not exist, or one that must not.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from proof.controls import CONTROLS
from proof.jobs import jobs, unreached
from proof.report import report
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
        return min(report((one.result() for one in todo), unreached()), 1)


if __name__ == "__main__":
    sys.exit(main())
