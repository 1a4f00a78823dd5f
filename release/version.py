"""The version of all packages. That of the workspace in Cargo.toml is the truth.

    python release/version.py            says it, or what differs from it, and fails then
    python release/version.py 1.2.3      sets it everywhere

pyproject.toml takes it from Cargo.toml, and the platforms' npm packages from the main one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = ROOT / "Cargo.toml"
NPM = ROOT / "bindings-node" / "package.json"
NPM_LOCK = ROOT / "package-lock.json"

SEMVER = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?"
"""Versions that mean the same to cargo and npm, and that PyPI can write as its own."""


def version() -> str:
    """The version of the workspace."""
    told: str = tomllib.loads(CARGO.read_text())["workspace"]["package"]["version"]
    return told


def others() -> Iterator[tuple[str, str]]:
    """Everything else that says a version, and what it says."""
    workspace = tomllib.loads(CARGO.read_text())["workspace"]
    for name, dependency in workspace["dependencies"].items():
        if "path" in dependency:
            yield f"Cargo.toml, dependency {name}", dependency["version"]
    for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]:
        if "source" not in package:
            yield f"Cargo.lock, {package['name']}", package["version"]
    yield "bindings-node/package.json", json.loads(NPM.read_text())["version"]
    lock = json.loads(NPM_LOCK.read_text())["packages"]["bindings-node"]
    yield "package-lock.json", lock["version"]


def change(path: Path, pattern: str, new: str) -> None:
    """Sets the version wherever the pattern, which has it as its second group, is found."""
    text, count = re.subn(pattern, rf"\g<1>{new}\g<3>", path.read_text(), flags=re.MULTILINE)
    if not count:
        raise SystemExit(f"{path.relative_to(ROOT)} has no version where it is looked for")
    path.write_text(text)


def set_version(new: str) -> None:
    """Sets the version everywhere."""
    if not re.fullmatch(SEMVER, new):
        raise SystemExit(f"the version must be like 1.2.3 or 1.2.3-rc.1, not {new}")
    change(CARGO, r'^(version = ")([^"]+)(")', new)
    change(CARGO, r'^(\S+ = \{ path = "[^"]+", version = ")([^"]+)(")', new)
    change(NPM, r'^(  "version": ")([^"]+)(")', new)
    change(NPM_LOCK, r'(^    "bindings-node": \{\n.*\n      "version": ")([^"]+)(")', new)
    subprocess.run(["cargo", "update", "--workspace", "--offline"], cwd=ROOT, check=True)


def main() -> None:
    if len(sys.argv) > 1:
        set_version(sys.argv[1])
    wrong = [f"{place}: {told}" for place, told in others() if told != version()]
    if wrong:
        raise SystemExit("\n".join([f"Cargo.toml says {version()}", *wrong]))
    print(version())


if __name__ == "__main__":
    main()
