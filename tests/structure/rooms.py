"""Defines the rooms of core/src, its top-level entries, and checks the imports between them.

As a program (`make rooms`), it prints the floor of each room, all import circles, and all imports
of a higher room. A room is one floor above the highest room that it imports.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from structure import imports

ROOT = Path(__file__).resolve().parents[2]

ROOMS = [
    "error",
    "runtime",
    "config",
    "wire",
    "memory",
    "telemetry",
    "transport",
    "node",
    "doctor",
    "lock",
    "client",
    "lib.rs",
    "testing",
]
"""The rooms, from the lowest to the highest. A room imports only lower rooms and the protocol."""

MOST_FLOORS = 10


def room(file: Path, source: Path) -> str:
    """Returns the room of the file: the entry of `source` that is or contains the file."""
    return file.relative_to(source).parts[0]


def upward(graph: imports.Graph, source: Path) -> list[str]:
    """Returns a line of text for each import of a file in a higher room."""
    return [
        f"{file.relative_to(source)} imports {', '.join(sorted(names))} from a higher room, "
        f"{target.relative_to(source)}"
        for file, targets in graph.items()
        for target, names in targets.items()
        if target.is_relative_to(source)
        and ROOMS.index(room(file, source)) < ROOMS.index(room(target, source))
    ]


def strangers(source: Path) -> list[str]:
    """Returns the entries of `source` that are not in `ROOMS`."""
    return sorted(entry.name for entry in source.iterdir() if entry.name not in ROOMS)


def floors(graph: imports.Graph, source: Path) -> dict[str, int]:
    """Returns the floor of each room: one more than the highest floor among the rooms it imports.

    The protocol, which is outside of `source`, is on floor 1. There must be no circle of rooms.
    """
    uses: dict[str, set[str]] = {name: set() for name in ROOMS}
    for file, targets in graph.items():
        for target in targets:
            inside = target.is_relative_to(source)
            used = room(target, source) if inside else "protocol"
            if used != room(file, source):
                uses[room(file, source)].add(used)

    def floor(name: str) -> int:
        return 1 + max(map(floor, uses.get(name, ())), default=0)

    return {name: floor(name) for name in ["protocol", *ROOMS]}


def tracked(*patterns: str) -> list[Path]:
    """Returns the files that match the patterns and that git tracks or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    files = (ROOT / name for name in listed.stdout.split("\0") if name)
    return sorted(file for file in files if file.is_file())


def core() -> imports.Graph:
    """Returns the imports between the files of core, and of the protocol."""
    protocol = ROOT / "core/protocol/src"
    return imports.rust(ROOT / "core/src", {"quorlock_protocol": protocol})


def graphs() -> dict[str, imports.Graph]:
    """Returns the import graph of each part of the project."""
    crates = {
        file.parent / "src" for file in tracked("*Cargo.toml") if (file.parent / "src").is_dir()
    }
    result = {
        str(source.relative_to(ROOT)): imports.rust(source)
        for source in sorted(crates)
        if source != ROOT / "core/src"
    }
    result["core/src"] = core()
    for test in sorted((ROOT / "core/tests").glob("*/main.rs")):
        result[str(test.parent.relative_to(ROOT))] = imports.rust(test.parent)
    # The stub represents the native module.
    scripts = tracked("*.py", "*.pyi")
    parents = sorted({file.parent for file in scripts})
    result["Python"] = imports.python(scripts, [ROOT / "bindings-python/python", ROOT, *parents])
    result["JavaScript"] = imports.javascript(tracked("*.js", "*.mjs", "*.cjs"))
    return result


def main() -> int:
    graph = core()
    source = ROOT / "core/src"
    by_floor = sorted(floors(graph, source).items(), key=lambda item: -item[1])
    for name, floor in by_floor:
        print(f"floor {floor:2}  {name}")
    found = 0
    for part, files in graphs().items():
        for circle in imports.circles(files):
            found += 1
            print(f"\na circle in {part}:")
            print("\n".join(f"  {line}" for line in imports.ties(files, circle)))
    for line in upward(graph, source):
        found += 1
        print(line)
    print(f"\n{found or 'no'} circles or upward imports")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
