"""Writes LICENSE-THIRD-PARTY: the licences and licence texts of all crates linked by the packages.

    python release/licenses.py [--target RUST_TARGET] [--crate CRATE ...] [FILE]

The file is generated with the packages and shipped in them. The default crates are those of the
Python and the Node.js package. A crate without a licence or without a
licence text is an error; put the text into release/licenses/CRATE.txt.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEXTS = Path(__file__).resolve().parent / "licenses"

LINKED = ["quorlock-python", "quorlock-node"]
"""The crates that go into packages, with all their dependencies."""


def host() -> str:
    """Returns the Rust target of this machine."""
    output = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return next(line.removeprefix("host: ") for line in output.splitlines() if line[:5] == "host:")


def linked(target: str, crates: Iterable[str] = LINKED) -> list[dict[str, Any]]:
    """Returns the crates that these crates of the workspace link for this target, with themselves.
    The entries are those of `cargo metadata`."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    metadata = json.loads(output)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    found: set[str] = set()
    wanted = set(crates)
    left = [key for key, package in packages.items() if package["name"] in wanted]
    while left:
        key = left.pop()
        kinds = [kind for part in packages[key]["targets"] for kind in part["kind"]]
        # Procedural macros run at compile time and are not linked.
        if key in found or "proc-macro" in kinds:
            continue
        found.add(key)
        left += [
            dependency["pkg"]
            for dependency in nodes[key]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
    every = [packages[key] for key in found]
    return sorted(every, key=lambda crate: (crate["name"], crate["version"]))


def of_third_parties(crates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the crates that are not part of the workspace."""
    return [crate for crate in crates if crate["source"]]


def texts(crate: dict[str, Any]) -> list[str]:
    """Returns the licence texts of a crate."""
    directory = Path(crate["manifest_path"]).parent
    names = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")
    # Some crates have a directory of licences.
    inner = [path for path in directory.glob("LICENSES/*") if path.is_file()]
    outer = [path for path in directory.iterdir() if path.name.upper().startswith(names)]
    files = [path for path in outer + inner if path.is_file()]
    if not files:
        files = [TEXTS / f"{crate['name']}.txt"]
    if not crate["license"] or not files[0].is_file():
        raise SystemExit(
            f"{crate['name']} {crate['version']} has no licence text:"
            f" put it into {files[0].relative_to(ROOT)}"
        )
    return [path.read_text(encoding="utf-8").strip() for path in sorted(files)]


def document(crates: list[dict[str, Any]]) -> str:
    """Returns the text of the file: the list of crates, and each licence text once."""
    by_text: dict[str, list[str]] = defaultdict(list)
    lines = ["quorlock is linked with these crates, and with the Rust standard library", ""]
    for crate in crates:
        name = f"{crate['name']} {crate['version']}"
        lines.append(f"  {name}: {crate['license']}")
        for text in texts(crate):
            by_text[text].append(name)
    for text, names in by_text.items():
        lines += ["", "-" * 80, f"of {', '.join(names)}:", "", text]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--target", default=None)
    parser.add_argument("--crate", action="append")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "LICENSE-THIRD-PARTY")
    arguments = parser.parse_args()
    crates = of_third_parties(linked(arguments.target or host(), arguments.crate or LINKED))
    arguments.file.write_text(document(crates), encoding="utf-8", newline="\n")
    print(f"{arguments.file.name}: {len(crates)} crates", file=sys.stderr)


if __name__ == "__main__":
    main()
