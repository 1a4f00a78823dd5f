"""The report of a chaos run: figures, and the events around a violation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import Any

from chaos.check import Entry, Violation, by_resource, end_seen
from chaos.faults import DAEMON_FAULTS, LAYERS, LEADER, PROCESS_FAULTS
from chaos.history import Run, language
from chaos.waits import longest_local_queue

BEFORE, AFTER = 500_000_000, 100_000_000
"""The time, in nanoseconds, that is shown before and after a violation."""


def summary(run: Run) -> dict[str, Any]:
    """Returns the figures of a run, for summary.json."""
    languages = dict.fromkeys(language(client) for client, _ in run.histories)
    # Count a lease of several resources once.
    held = list({lease.token: lease for lease in run.leases}.values())
    locks = [lease for lease in held if not lease.permits]
    several = Counter(lease.token for lease in run.leases if not lease.permits)
    waits = run.waits
    errors = Counter(
        (language(client), entry["code"])
        for client, entries in run.histories
        for entry in entries
        if entry["event"] == "error"
    )
    refused = Counter(entry["event"] for entry in run.register if not entry["ok"])
    disconnected = Counter(
        language(client)
        for client, entries in run.histories
        for entry in entries
        if entry["event"] == "disconnected"
    )
    faults = Counter(fault.kind for fault in run.injected)
    return {
        "seed": run.seed,
        "seconds": round(run.seconds(run.ended), 1),
        "calms": len(run.calms),
        "acquisitions": {"all": len(locks)}
        | {each: sum(language(lease.client) == each for lease in locks) for each in languages},
        "two resources": {
            each: sum(several[lease.token] > 1 for lease in held if language(lease.client) == each)
            for each in languages
        },
        "shared": shared(run),
        "permits": permits(run),
        "hand-overs": handed_over(run),
        "elections": elections(run),
        "waits": {
            "all": len(waits),
            "unlimited": sum(wait.length is None for wait in waits),
            "cancelled": sum(wait.outcome == "cancelled" for wait in waits),
            "ended by a kill": sum(wait.outcome == "killed" for wait in waits),
            "longer than 1 s": sum((wait.ended or run.ended) - wait.asked > 1e9 for wait in waits),
            "longest local queue": longest_local_queue(waits),
        },
        "clients hit while": hits(run),
        "timeouts": {each: errors[each, "TIMEOUT"] for each in languages},
        "no quorum": {each: errors[each, "NO_QUORUM"] for each in languages},
        "lost": {
            each: sum(lease.lost for lease in held if language(lease.client) == each)
            for each in languages
        },
        "disconnected": {each: disconnected[each] for each in languages if disconnected[each]},
        "faults": {
            kind: faults[kind] for kind in LAYERS if faults[kind] or kind not in DAEMON_FAULTS
        },
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


def shared(run: Run) -> dict[str, int]:
    """Counts the shared leases by language, those that were granted while another client was seen
    to have one of the same resource, and the changes of modes."""
    readers = [lease for lease in run.leases if lease.shared]
    together = 0
    for _, held in by_resource(readers):
        ends: dict[str, int] = {}
        for lease in held:
            others = (end for client, end in ends.items() if client != lease.client)
            together += max(others, default=0) > lease.granted
            ends[lease.client] = max(ends.get(lease.client, 0), end_seen(lease))
    events = Counter(
        entry["event"]
        for _, entries in run.histories
        for entry in entries
        if entry["event"] == "downgrade" or (entry["event"] == "upgraded" and entry["ok"])
    )
    by_language = Counter(language(lease.client) for lease in readers)
    return {
        **dict(sorted(by_language.items())),
        "together": together,
        "downgraded": events["downgrade"],
        "upgraded": events["upgraded"],
    }


def permits(run: Run) -> dict[str, int]:
    """Counts the leases of permits by language, those of several permits, and those that were
    granted while others were seen to hold all other permits."""
    slots = [lease for lease in run.leases if lease.permits]
    leases = {lease.token: lease for lease in slots}.values()
    by_language = Counter(language(lease.client) for lease in leases)
    ends: dict[str, int] = {}
    full = 0
    for lease in slots:
        ends[lease.resource] = max(ends.get(lease.resource, 0), end_seen(lease))
        full += all(end >= lease.granted for end in ends.values())
    return {
        "all": len(leases),
        **dict(sorted(by_language.items())),
        "several": sum(lease.permits > 1 for lease in leases),
        "all held": full,
    }


def handed_over(run: Run) -> dict[str, int]:
    """Counts the leases that were detached, and those that were adopted, by language."""
    givers = {lease.token: lease for lease in run.leases}
    adopters = {lease.giver: lease for lease in run.leases if lease.giver is not None}
    pairs = Counter(
        f"{language(givers[giver].client)} to {language(adopter.client)}"
        for giver, adopter in adopters.items()
    )
    late = (
        entry.get("giver") and entry.get("code") == "LEASE_LOST"
        for _, entries in run.histories
        for entry in entries
    )
    return {
        "detached": sum(lease.kept > 0 for lease in givers.values()),
        "adopted": len(adopters),
        **dict(sorted(pairs.items())),
        "too late": sum(map(bool, late)),
    }


def elections(run: Run) -> dict[str, Any]:
    """Counts the terms of leaders, and what observers were told. For each way in which a term can
    end: the number of such ends, and the median time until the next leader, in milliseconds."""
    terms = sorted(
        (lease for lease in run.leases if lease.resource == LEADER), key=lambda lease: lease.fence
    )
    kills = {
        client: [entry["at"] for entry in entries if entry["event"] == "killed"]
        for client, entries in run.histories
    }
    gaps: dict[str, list[float]] = defaultdict(list)
    for first, second in pairwise(terms):
        end = first.release_began
        kind = "handed over" if first.successor else "released"
        if first.named and not first.successor and end == first.detach_began:
            continue  # It is not known how the term ended.
        if end is None:
            kind = "killed"
            end = next((at for at in kills[first.client] if first.granted < at), None)
        if end is not None and first.granted < end < second.granted:
            gaps[kind].append((second.granted - end) / 1e6)
    observed = sum(
        entry["event"] == "observed" for _, entries in run.histories for entry in entries
    )
    found: dict[str, Any] = {"terms": len(terms), "observed": observed}
    for kind, times in sorted(gaps.items()):
        found[kind] = len(times)
        found[f"{kind}, ms"] = round(median(times), 1)
    return found


def hits(run: Run) -> dict[str, int]:
    """Counts the kills and stops that hit a client while it held a lease, or while it waited."""
    held, waits = run.leases, run.waits
    found = {"holding": 0, "waiting": 0}
    for fault in run.injected:
        if fault.kind in PROCESS_FAULTS:
            at, client = fault.begins, fault.target
            found["holding"] += any(
                lease.client == client and lease.granted < at < max(end_seen(lease), lease.promised)
                for lease in held
                if lease.release_began is None or lease.release_began > at
            )
            found["waiting"] += any(
                wait.client == client and wait.asked < at < (wait.ended or run.ended)
                for wait in waits
            )
    return found


def show(figures: Mapping[str, Any]) -> None:
    """Prints the figures."""
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
    """Formats the events around the time of a violation: those of its resource, and all faults."""
    since, until = violation.at - BEFORE, violation.at + AFTER
    resources: dict[str, set[str]] = defaultdict(set)
    for lease in run.leases:
        resources[lease.token].add(lease.resource)
    lines: list[tuple[int, str]] = []

    def add_line(at: int, name: str, text: str) -> None:
        mark = ">" if at == violation.at else " "
        lines.append((at, f"{mark}{run.seconds(at):>11.6f}  {name:<15}  {text}"))

    for fault in run.injected:
        if fault.begins < until and fault.ends > since:
            add_line(fault.begins, fault.target, f"*** {fault.kind}")
            if fault.ends > fault.begins:
                add_line(fault.ends, fault.target, f"*** end of: {fault.kind}")
    for client, entries in [*run.histories, ("register", run.register)]:
        for entry in without_looks(entries):
            about = resources[entry["token"]] if "token" in entry else entry.get("resources", ())
            if "resource" in entry:
                about = {entry["resource"]}
            wanted = since < entry["at"] < until or entry.get("token") in violation.tokens
            if wanted and (violation.resource is None or violation.resource in about):
                add_line(entry["at"], client, describe(entry, run))
    return "\n".join(line for _, line in sorted(lines))


def without_looks(entries: list[Entry]) -> Iterator[Entry]:
    """Drops the checks of a lease except for the last valid and the first invalid one."""
    last: dict[str, Entry] = {}
    ended: set[str] = set()
    for entry in entries:
        token = entry.get("token")
        if entry["event"] != "look":
            if token in last:
                yield last.pop(token)
            yield entry
        elif entry["left"] > 0:
            last[entry["token"]] = entry
        elif token not in ended:
            ended.add(entry["token"])
            if token in last:
                yield last.pop(token)
            yield entry
    yield from last.values()


def describe(entry: Entry, run: Run) -> str:
    """Formats an entry of a history as text."""
    left = f"valid for {entry['left'] / 1e6:.3f} ms" if entry.get("left") else "not valid"
    lease = f"lease {entry.get('token', '')[:8]}"
    match entry["event"]:
        case "granted":
            renewal = "renewed" if entry["extended"] else "not renewed"
            if entry["extended"] not in (True, False):
                renewal += f" for {entry['extended']} ms"
            began = f"{run.seconds(entry['asked']):.6f}"
            fences = ", ".join(f"{name} fence {fence}" for name, fence in entry["fences"].items())
            verb = f"adopted from {entry['giver'][:8]}" if entry.get("giver") else "granted"
            return f"{lease} {verb}: {fences}, {left}, {renewal}, acquire began at {began}"
        case "look":
            return f"{lease} {left}"
        case "refused":
            return f"{lease} refused by the register for {entry['resource']}; {left}"
        case "release":
            return f"{lease} about to be released"
        case "detach":
            return f"{lease} about to be detached, for {entry['within']} ms"
        case "detached":
            return f"{lease} detached: {entry['ok']}"
        case "downgrade" | "upgrade" as event:
            return f"{lease} about to be {event}d"
        case "upgraded":
            return f"{lease} upgraded: {entry['ok']}; {left}"
        case "hand":
            return f"{lease} about to be handed over to {entry['to']}"
        case "handed":
            return f"{lease} handed over: {entry['ok']}; {left}"
        case "observed":
            return f"told of the leader {entry['holder']}, fence {entry['fence']}"
        case "released":
            return f"{lease} released: {entry['ok']}"
        case "error":
            return f"acquire {entry['ask']} failed: {entry['code']}"
        case "ask":
            length = "forever" if entry["wait"] is None else f"for up to {entry['wait']} ms"
            verb = f"adoption of {entry['giver'][:8]}" if entry.get("giver") else "acquire"
            return f"{verb} {entry['ask']}: waits {length} for {' and '.join(entry['resources'])}"
        case "cancel":
            return f"acquire {entry['ask']} about to be cancelled"
        case "cancelled":
            return f"acquire {entry['ask']} cancelled"
        case "disconnected":
            return f"{lease}: the connection to the daemon has ended"
        case (
            "stopped"
            | "continued"
            | "killing"
            | "killed"
            | "drained"
            | "ending"
            | "closed" as event
        ):
            return f"*** {event}"
    verdict = "" if entry["ok"] else " REFUSED"
    return (
        f"{entry['event']} {entry['value']} by {entry['client']}, fence {entry['fence']}{verdict}"
    )
