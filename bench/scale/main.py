"""`make bench-scale`; see README.md in this directory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine
from group import Group
from parameters import ROOT
from progress import progress
from scale import distinct, held, nodes, processes, resources
from scale.settings import RESULTS, SHORT

SCENARIOS = {
    "held": held.measure,
    "distinct": distinct.measure,
    "processes": processes.measure,
    "resources": resources.measure,
    "nodes": nodes.measure,
}


def main(names: list[str]) -> None:
    """Measures the named scenarios, by default all of them. Saves only a full run of all."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "quorlock-bench"]
    subprocess.run(build, check=True, cwd=ROOT)
    with ExitStack() as stack:
        placement = Group(stack, 1).placement
    results: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "placement": placement,
    }
    for name in names or SCENARIOS:
        results[name] = SCENARIOS[name]()
    text = json.dumps(results, indent=1) + "\n"
    if SHORT or names:
        print(text)
    else:
        RESULTS.write_text(text)
    progress("done\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
