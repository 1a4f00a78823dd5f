"""The results of the demo: the work of each process, and whether the lock held."""

from __future__ import annotations

import statistics
from collections import Counter

from demo.record import Process, Record


def waits(process: Process) -> tuple[float, float, float]:
    """The median, the 99th percentile and the maximum of the time, in milliseconds, that its
    updates waited for the lock."""
    found = [(update["from"] - update["asked"]) / 1e6 for update in process.updates]
    found = sorted(found) or [0.0]
    return statistics.median(found), found[int(0.99 * (len(found) - 1))], found[-1]


def errors(process: Process) -> str:
    """How many errors of each kind it had."""
    counted = Counter(entry["error"] for entry in process.errors).items()
    return ", ".join(f"{count} {error}" for error, count in counted) or "none"


def checks(record: Record) -> dict[str, int]:
    """What must not happen, and how often it happened."""
    made = len(record.updates)
    found = {
        f"updates lost ({made:,} made, the counter says {record.counter:,})": record.lost,
        "updates that began while another was at work": record.overlaps,
    }
    if record.locked:
        found["fencing tokens that did not increase"] = record.fences_not_increased
    return found


def is_sound(record: Record) -> bool:
    """Whether all checks passed."""
    return not any(checks(record).values()) and not record.idle and not record.failed


def print_processes(record: Record) -> None:
    """Print a table with one line for each process."""
    waited = "   waited for the lock: median      99 %    longest   errors" * record.locked
    print(f"\n{'process':<16}{'updates':>8}{waited}")
    for process in record.processes:
        line = f"{process.name:<16}{len(process.updates):>8,}"
        if record.locked:
            median, p99, longest = waits(process)
            line += f"{median:>27.1f} ms{p99:>7.1f} ms{longest:>8.1f} ms   {errors(process)}"
        print(line)


def print_checks(record: Record) -> None:
    """Print a table with one line for each check."""
    print(f"\n{'check':<60}{'must be':>8}{'is':>8}")
    for name, found in checks(record).items():
        print(f"{name:<60}{0:>8}{found:>8,}")
    if record.locked:
        # Not a failure: the machine was too slow for the ttl. Fencing tokens protect the data in
        # that case.
        print(f"{'updates that took longer than their lease':<60}{'':>8}{record.late:>8,}")
    if record.failed:
        print(f"ended with an error: {', '.join(record.failed)}")
    if record.idle:
        print(f"made no update: {', '.join(record.idle)}")


def verdict(record: Record) -> str:
    """One sentence: what the checks mean."""
    made, lost = len(record.updates), record.lost
    if record.interrupted:
        return f"The run was interrupted: {made:,} updates so far, {lost:,} of them lost."
    if record.locked:
        if is_sound(record):
            return f"The lock held: {made:,} updates, none lost, while servers failed."
        return "The lock FAILED. Please report this, with all of the output above."
    if is_sound(record):
        return "No update was lost this time, by luck: there was no lock. Run it again."
    return f"Without the lock, {lost:,} of {made:,} updates were lost."


def next_step(record: Record) -> str:
    """What to do next; empty if the verdict says it."""
    if record.interrupted or is_sound(record) != record.locked:
        return ""
    if record.locked:
        return (
            'Next: "make demo LOCK=off" shows the same without the lock; README.md shows how to\n'
            "use it in Python, Node.js, Rust and shell scripts."
        )
    return 'The exit status is 1, as for every failed check. Next: "make demo" uses the lock.'
