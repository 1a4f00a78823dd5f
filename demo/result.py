"""Prints the results of the demo: the work of each process, and whether the lock held."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter

from demo.worker_process import WorkerProcess


def print_processes(workers: list[WorkerProcess], locked: bool) -> None:
    """Print a table with one line for each process."""
    waited = "   waited for the lock: median      99 %    longest   errors" if locked else ""
    print(f"\n{'process':<16}{'updates':>8}{waited}")
    for worker in workers:
        line = f"{worker.name:<16}{len(worker.updates):>8,}"
        if locked:
            waits = [(update["from"] - update["asked"]) / 1e6 for update in worker.updates]
            waits = sorted(waits) or [0.0]
            median, p99 = statistics.median(waits), waits[int(0.99 * (len(waits) - 1))]
            counted = Counter(worker.errors).items()
            errors = ", ".join(f"{count} {error}" for error, count in counted) or "none"
            line += f"{median:>27.1f} ms{p99:>7.1f} ms{waits[-1]:>8.1f} ms   {errors}"
        print(line)


def print_verdict(workers: list[WorkerProcess], counter: int, locked: bool) -> bool:
    """Print the checks, the verdict and the next step. Return whether all checks passed."""
    updates = [update for worker in workers for update in worker.updates]
    updates.sort(key=lambda update: update["from"])
    pairs = list(itertools.pairwise(updates))
    idle = [worker.name for worker in workers if not worker.updates]
    failed = [worker.name for worker in workers if worker.process.returncode]
    lost = len(updates) - counter
    checks = {
        f"updates lost ({len(updates):,} made, the counter says {counter:,})": lost,
        "times that two were at work on the counter at once": sum(
            later["from"] < earlier["to"] for earlier, later in pairs
        ),
    }
    if locked:
        checks["fencing tokens that did not increase"] = sum(
            later["fence"] <= earlier["fence"] for earlier, later in pairs
        )
    print(f"\n{'check':<60}{'must be':>8}{'is':>8}")
    for name, found in checks.items():
        print(f"{name:<60}{0:>8}{found:>8,}")
    if locked:
        # Not a failure: the machine was too slow for the ttl. Fencing tokens protect the data in
        # that case.
        late = sum(update["to"] > update["valid_until"] for update in updates)
        print(f"{'updates that took longer than their lease':<60}{'':>8}{late:>8,}")
    if failed:
        print(f"ended with an error: {', '.join(failed)}")
    if idle:
        print(f"made no update: {', '.join(idle)}")
    sound = not any(checks.values()) and not idle and not failed
    print(f"\n{verdict(sound, locked, len(updates), lost)}")
    return sound


def verdict(sound: bool, locked: bool, made: int, lost: int) -> str:
    """The last lines: what the checks mean, and what to do next."""
    if sound and locked:
        return (
            f"The lock held: {made:,} updates, none lost, while servers failed.\n"
            'Next: "make demo LOCK=off" shows the same without the lock; README.md shows how to\n'
            "use it in Python, Node.js, Rust and shell scripts."
        )
    if locked:
        return "The lock FAILED. Please report this, with all of the output above."
    if sound:
        return "No update was lost this time, by luck: there was no lock. Run it again."
    return (
        f"Without the lock, {lost:,} of {made:,} updates were lost. The exit status is 1, as for\n"
        'every failed check. Next: "make demo" shows the same with the lock.'
    )
