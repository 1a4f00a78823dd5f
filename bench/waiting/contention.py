"""Runs all measurements of waiting, in order."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import counting
import crowd
import death
import fairness
import handing
import idle
from interop.installing import NotInstalledError
from placing import place
from progress import progress
from servers import Servers
from settings import (
    CONTENDERS,
    FURTHER,
    HERE,
    NODE,
    NODES,
    PYTHON,
    ROUNDS,
    SECONDS,
    WAITING,
    Contender,
)
from tables import goal
from workers import Workers

PATIENCE = 10.0
"""Seconds after which all keys of quorlock except fence counters must have expired."""


def installed() -> tuple[list[Contender], dict[str, str]]:
    """Installs the peers. Returns the installed contenders, and why the others are missing."""
    reasons: dict[str, str] = {}
    for ecosystem in (PYTHON, NODE):
        try:
            ecosystem.install()
        except NotInstalledError as error:
            reasons[ecosystem.directory] = str(error)
    missing = {
        contender.name: reasons[ecosystem.directory]
        for contender in CONTENDERS
        for ecosystem in contender.ecosystems
        if contender.is_peer and ecosystem.directory in reasons
    }
    return [each for each in CONTENDERS if each.name not in missing], missing


def main() -> None:
    progress("installing peers")
    contenders, missing = installed()
    with ExitStack() as stack:
        progress("starting")
        servers = stack.enter_context(Servers(NODES))
        placement = place([servers])
        workers = Workers(max(*WAITING, *(processes for processes, _ in FURTHER.values())))
        stack.callback(workers.close)
        print(
            f"Waiting for a lock that is held for 1 ms, N = {NODES}; {ROUNDS} rounds, {SECONDS:g} s"
            f" for each contender; {placement}."
        )
        for name, reason in missing.items():
            print(f"\n{name} is left out: {reason}")
        tallies = handing.measure(workers, list(servers), contenders)
        progress("")
        results: dict[str, Any] = {
            "rounds": ROUNDS,
            "seconds": SECONDS,
            "placement": placement,
            "left out": missing,
        }
        results |= handing.report(tallies, contenders)
        results["fairness"] = fairness.measure(workers, list(servers), contenders)
        results["crowd"] = crowd.measure(servers)
        results["idle"] = idle.measure(servers)
        results["death"] = death.measure(servers)
        progress("what is left behind")
        left = counting.leftovers(list(servers), PATIENCE)
        results["left behind"] = left
        print(
            f"\nKeys left behind by quorlock, beside fence counters, {PATIENCE:g} s after all"
            f" clients were closed: {len(left)}; none: {goal(not left)} {' '.join(left[:5])}"
        )
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
