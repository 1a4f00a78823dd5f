"""`make bench-serve`; see README.md in this directory."""

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
from peers.ecosystems import GO, JAVA
from progress import progress
from serve import cycles, idle, kills
from serve.goals import goals
from serve.page import section
from serve.settings import RESULTS, SHORT


def main() -> None:
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "quorlock-bench"]
    subprocess.run(build, check=True, cwd=ROOT)
    progress("peers: go and java, installed if they are missing")
    GO.install()
    JAVA.install()
    with ExitStack() as stack:
        placement = Group(stack, 1).placement
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "placement": placement,
        "cycles": cycles.measure(),
        "idle": idle.measure(),
        "kills": kills.measure(),
    }
    for each in goals(results):
        print(f"{each.what}: {each.measured}, goal: {each.goal}")
    if SHORT:
        print(section(results))
    else:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    progress("done\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
