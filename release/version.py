"""Checks or sets the version of all packages. The workspace version in Cargo.toml is authoritative.

    python release/version.py            prints the version; fails if a file has another one
    python release/version.py 1.2.3      sets the version in all files

pyproject.toml takes it from Cargo.toml, and the npm packages of platforms from the main package.
Setting the version of a release also makes the pages show how to install it from the registries.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import home
import install

ROOT = Path(__file__).resolve().parent.parent
CARGO = ROOT / "Cargo.toml"
NPM = ROOT / "bindings-node" / "package.json"
NPM_LOCK = ROOT / "package-lock.json"

SEMVER = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?"
"""Versions with the same meaning in cargo and npm, which can be converted to PyPI's format."""

IMAGE = rf"({re.escape(home.home().image)}:)(\d+\.\d+\.\d+[\w.-]*)()"
"""The name and the tag of the image in examples and on pages."""


def version() -> str:
    """Returns the version of the workspace."""
    found: str = tomllib.loads(CARGO.read_text())["workspace"]["package"]["version"]
    return found


def others() -> Iterator[tuple[str, str]]:
    """Yields the location and the value of every other version in the repository."""
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
    for path, text in home.files(ROOT):
        for match in re.finditer(IMAGE, text):
            yield str(path.relative_to(ROOT)), match[2]


def change(path: Path, pattern: str, new: str) -> None:
    """Sets the version at each match of the pattern, whose second group is the version."""
    text, count = re.subn(pattern, rf"\g<1>{new}\g<3>", path.read_text(), flags=re.MULTILINE)
    if not count:
        raise SystemExit(f"no version found in {path.relative_to(ROOT)}")
    path.write_text(text)


def set_version(new: str) -> None:
    """Sets the version in all files."""
    if not re.fullmatch(SEMVER, new):
        raise SystemExit(f"the version must be like 1.2.3 or 1.2.3-rc.1, not {new}")
    change(CARGO, r'^(version = ")([^"]+)(")', new)
    change(CARGO, r'^(\S+ = \{ path = "[^"]+", version = ")([^"]+)(")', new)
    change(NPM, r'^(  "version": ")([^"]+)(")', new)
    change(NPM_LOCK, r'(^    "bindings-node": \{\n.*\n      "version": ")([^"]+)(")', new)
    for path, text in home.files(ROOT):
        if re.search(IMAGE, text):
            change(path, IMAGE, new)
    subprocess.run(["cargo", "update", "--workspace", "--offline"], cwd=ROOT, check=True)
    if "-" not in new:
        install.write(install.REGISTRIES)


def main() -> None:
    if len(sys.argv) > 1:
        set_version(sys.argv[1])
    wrong = [f"{location}: {found}" for location, found in others() if found != version()]
    if wrong:
        raise SystemExit("\n".join([f"Cargo.toml: {version()}", *wrong]))
    print(version())


if __name__ == "__main__":
    main()
