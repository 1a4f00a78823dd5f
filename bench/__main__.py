"""Measures a topic: `python -m bench [TOPIC [SCENARIO...]]`. `make bench` builds what it needs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module

from bench import machine
from bench.group import Group
from bench.progress import progress
from bench.settings import FULL, ROOT, TOPICS, results_file
from bench.topic import Results, Topic


def measure(topic: Topic, names: list[str]) -> Results:
    """Builds the programs, installs the peers, and returns the results of the named scenarios."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "quorlock-bench"]
    subprocess.run(build, check=True, cwd=ROOT)
    for peers in topic.peers:
        progress(f"installing the peers in {peers.directory} if they are missing")
        peers.install()
    with ExitStack() as stack:
        placement = Group(stack, 1).placement
    results: Results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "placement": placement,
    }
    for name in names or topic.scenarios:
        results[name] = topic.scenarios[name]()
    return results


def main() -> None:
    """Saves only a run of all scenarios with the default sizes."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("topic", nargs="?", default="performance", choices=TOPICS)
    parser.add_argument("scenarios", nargs="*", help="all of them by default")
    arguments = parser.parse_args()
    topic: Topic = import_module(f"bench.{arguments.topic}.topic").TOPIC
    results = measure(topic, arguments.scenarios)
    text = json.dumps(results, indent=1) + "\n"
    is_full = FULL and not arguments.scenarios
    if is_full:
        results_file(arguments.topic).write_text(text)
    progress("done\n")
    if topic.show and not arguments.scenarios:
        print(topic.show(results))
    elif not is_full:
        print(text)
    if not arguments.scenarios:
        for each in topic.goals(results):
            verdict = {True: "met", False: "missed", None: "not measured"}[each.met]
            print(f"{each.what}: {each.measured}, goal: {each.goal}, {verdict}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
