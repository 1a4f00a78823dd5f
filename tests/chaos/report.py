"""What a chaos run says to people: figures, and what happened around a violation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from chaos.check import Entry, Violation, end_seen
from chaos.faults import PROCESS_FAULTS, SLOTS
from chaos.history import Run, language
from chaos.waits import most_in_one_line

BEFORE, AFTER = 500_000_000, 100_000_000
"""What is shown around a violation, in nanoseconds."""


def summary(run: Run) -> dict[str, Any]:
    """The figures of a run, for summary.json."""
    languages = dict.fromkeys(language(client) for client, _ in run.histories)
    # A lease of several resources is one.
    held = list({lease.token: lease for lease in run.leases}.values())
    several = Counter(lease.token for lease in run.leases)
    waits = run.waits
    errors = Counter(
        (language(client), entry["code"])
        for client, entries in run.histories
        for entry in entries
        if entry["event"] == "error"
    )
    refused = Counter(entry["event"] for entry in run.register if not entry["ok"])
    faults = Counter(stroke.kind for stroke in run.strokes)
    return {
        "seed": run.seed,
        "seconds": round(run.seconds(run.ended), 1),
        "calms": len(run.calms),
        "acquisitions": {"all": len(held)}
        | {each: sum(language(lease.client) == each for lease in held) for each in languages},
        "of two": {
            each: sum(several[lease.token] > 1 for lease in held if language(lease.client) == each)
            for each in languages
        },
        "waits": {
            "all": len(waits),
            "for ever": sum(wait.length is None for wait in waits),
            "cancelled": sum(wait.outcome == "cancelled" for wait in waits),
            "cut short by a kill": sum(wait.outcome == "killed" for wait in waits),
            "longer than 1 s": sum((wait.ended or run.ended) - wait.asked > 1e9 for wait in waits),
            "at most at once, of one client for one resource": most_in_one_line(waits),
        },
        "struck while": struck(run),
        "timeouts": {each: errors[each, "TIMEOUT"] for each in languages},
        "no quorum": {each: errors[each, "NO_QUORUM"] for each in languages},
        "lost": {
            each: sum(lease.lost for lease in held if language(lease.client) == each)
            for each in languages
        },
        "faults": {kind: faults[kind] for kind in SLOTS},
        "register": {
            "writes": sum(entry["ok"] and entry["event"] == "write" for entry in run.register),
            "late reads refused": refused["read"],
            "late writes refused": refused["write"],
        },
        "violations": [
            asdict(violation) | {"at": round(run.seconds(violation.at), 6)}
            for violation in run.violations
        ],
    }


def struck(run: Run) -> dict[str, int]:
    """How many kills and stops struck a client that held, and one that waited."""
    held, waits = run.leases, run.waits
    found = {"holding": 0, "waiting": 0}
    for stroke in run.strokes:
        if stroke.kind in PROCESS_FAULTS:
            at, client = stroke.begins, stroke.target
            found["holding"] += any(
                lease.client == client and lease.granted < at < max(end_seen(lease), lease.promised)
                for lease in held
                if lease.given_up is None or lease.given_up > at
            )
            found["waiting"] += any(
                wait.client == client and wait.asked < at < (wait.ended or run.ended)
                for wait in waits
            )
    return found


def show(figures: Mapping[str, Any]) -> None:
    """Prints them."""
    for name, figure in figures.items():
        if isinstance(figure, dict):
            shown = ", ".join(f"{key} {value}" for key, value in figure.items())
            print(f"{name:<14}{shown}")
        elif name == "violations":
            counts = Counter(violation["kind"] for violation in figure)
            print(f"{name:<14}{', '.join(f'{k} {n}' for k, n in counts.items()) or 'none'}")
        else:
            print(f"{name:<14}{figure}")


def excerpt(run: Run, violation: Violation) -> str:
    """What happened around a violation: to the resource, and to the servers and clients."""
    since, until = violation.at - BEFORE, violation.at + AFTER
    resources: dict[str, set[str]] = defaultdict(set)
    for lease in run.leases:
        resources[lease.token].add(lease.resource)
    lines: list[tuple[int, str]] = []

    def tell(at: int, who: str, text: str) -> None:
        mark = ">" if at == violation.at else " "
        lines.append((at, f"{mark}{run.seconds(at):>11.6f}  {who:<15}  {text}"))

    for stroke in run.strokes:
        if stroke.begins < until and stroke.ends > since:
            tell(stroke.begins, stroke.target, f"*** {stroke.kind}")
            if stroke.ends > stroke.begins:
                tell(stroke.ends, stroke.target, f"*** no longer {stroke.kind}")
    for client, entries in [*run.histories, ("register", run.register)]:
        for entry in without_looks(entries):
            about = resources[entry["token"]] if "token" in entry else entry.get("resources", ())
            if "resource" in entry:
                about = {entry["resource"]}
            wanted = since < entry["at"] < until or entry.get("token") in violation.tokens
            if wanted and (violation.resource is None or violation.resource in about):
                tell(entry["at"], client, describe(entry, run))
    return "\n".join(line for _, line in sorted(lines))


def without_looks(entries: list[Entry]) -> Iterator[Entry]:
    """Of the looks at a lease, the last valid one and the first that was not are worth reading."""
    last: dict[str, Entry] = {}
    over: set[str] = set()
    for entry in entries:
        token = entry.get("token")
        if entry["event"] != "look":
            if token in last:
                yield last.pop(token)
            yield entry
        elif entry["left"] > 0:
            last[entry["token"]] = entry
        elif token not in over:
            over.add(entry["token"])
            if token in last:
                yield last.pop(token)
            yield entry
    yield from last.values()


def describe(entry: Entry, run: Run) -> str:
    """A line of a history, in words."""
    left = f"valid for {entry['left'] / 1e6:.3f} ms" if entry.get("left") else "not valid"
    lease = f"lease {entry.get('token', '')[:8]}"
    match entry["event"]:
        case "granted":
            way = "extended" if entry["extended"] else "not extended"
            asked = f"{run.seconds(entry['asked']):.6f}"
            fences = ", ".join(f"{name} fence {fence}" for name, fence in entry["fences"].items())
            return f"{lease} granted: {fences}, {left}, {way}, asked at {asked}"
        case "look":
            return f"{lease} {left}"
        case "refused":
            return f"{lease} refused by the register for {entry['resource']}; {left}"
        case "release":
            return f"{lease} about to be released"
        case "released":
            return f"{lease} released: {entry['ok']}"
        case "error":
            return f"ask {entry['ask']} ended: {entry['code']}"
        case "ask":
            length = "for ever" if entry["wait"] is None else f"for {entry['wait']} ms"
            return f"ask {entry['ask']}: waits {length} for {' and '.join(entry['resources'])}"
        case "cancel":
            return f"ask {entry['ask']} about to be cancelled"
        case "cancelled":
            return f"ask {entry['ask']} cancelled"
        case "stopped" | "continued" | "killed" | "over" | "closed" as event:
            return f"*** {event}"
    verdict = "" if entry["ok"] else " REFUSED"
    return (
        f"{entry['event']} {entry['value']} by {entry['client']}, fence {entry['fence']}{verdict}"
    )
