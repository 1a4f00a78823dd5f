"""`make bench`; see README.md in this directory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import commands
import machine
import parameters
from group import Group
from progress import progress
from roster import contenders
from scenarios import (
    contention,
    faults,
    holding,
    in_flight,
    one_at_a_time,
    round_trips,
    startup,
)


def main() -> None:
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "quorlock-bench"]
    subprocess.run(build, check=True, cwd=parameters.ROOT)
    progress("installing peers")
    present, missing = contenders()
    for name, reason in missing.items():
        print(f"without {name}: {reason}", file=sys.stderr)
    commands.check(present)
    with ExitStack() as stack:
        placement = Group(stack, 1).placement
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "placement": placement,
        "rounds": parameters.ROUNDS,
        "cycles": parameters.CYCLES,
        "contenders": {
            each.name: {"kind": each.kind, "language": each.language, "form": each.form}
            for each in present
        },
        "missing": sorted(missing),
        "one at a time": one_at_a_time.measure(present),
        "in flight": in_flight.measure(present),
        "in flight, one node": in_flight.measure_one_node(present),
        "contention": contention.measure(present),
        "round trips": round_trips.measure(present),
        "faults": faults.measure(present),
        "start": startup.measure(),
        "memory": holding.measure_memory(),
        "held": holding.measure_upkeep(),
    }
    parameters.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    progress("done\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
