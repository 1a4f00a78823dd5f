"""Runs a benchmark that has a section of its own on the page."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import machine
from goals import Goal
from group import Group
from interop.installing import Ecosystem
from parameters import ROOT
from progress import progress

Results = dict[str, Any]


def as_json(results: Results) -> str:
    return json.dumps(results, indent=1) + "\n"


def run(
    peers: Mapping[str, Ecosystem],
    measures: Mapping[str, Callable[[], Any]],
    file: Path | None,
    goals: Callable[[Results], Iterable[Goal]] = lambda _: (),
    show: Callable[[Results], str] = as_json,
) -> None:
    """Builds the programs, installs the peers, measures, and prints which goals are met.

    Writes the results to `file`. Without a file, prints them as `show` tells. Exits at Ctrl-C.
    """
    try:
        build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "quorlock-bench"]
        subprocess.run(build, check=True, cwd=ROOT)
        progress(f"peers: {' and '.join(peers)}, installed if missing")
        for peer in peers.values():
            peer.install()
        with ExitStack() as stack:
            placement = Group(stack, 1).placement
        results: Results = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine.describe(),
            "placement": placement,
        }
        for name, measure in measures.items():
            results[name] = measure()
        for each in goals(results):
            print(f"{each.what}: {each.measured}, goal: {each.goal}")
        if file is None:
            print(show(results))
        else:
            file.write_text(as_json(results))
        progress("done\n")
    except KeyboardInterrupt:
        sys.exit(130)
