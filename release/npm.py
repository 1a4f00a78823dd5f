"""Writes the npm packages as directories, ready for `npm pack` and `npm publish`.

    python release/npm.py OUT ADDONS [--all]

ADDONS has a directory for each platform, named as in platforms.json, with quorlock.node and
LICENSE-THIRD-PARTY. OUT gets a directory for each platform, and the directory `quorlock`, whose
optional dependencies are the packages of all platforms: npm installs the matching one. With --all,
which releases use, a platform that is missing in ADDONS is an error.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from home import home

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "bindings-node"
SKILL = ".agents/skills/quorlock/SKILL.md"
"""The skill file for coding agents. Its source is in the Python package, which contains it too."""
ADDON_FILES = ["quorlock.node", "LICENSE-THIRD-PARTY"]
SHARED = ["version", "license", "homepage", "repository", "bugs", "engines"]
"""The fields that are the same in the manifests of all packages."""

README = """\
# {name}

The addon of [quorlock](https://www.npmjs.com/package/quorlock) for {platform}. Install `quorlock`,
which depends on this package.
"""


def platforms() -> dict[str, dict[str, str]]:
    """Returns the platforms of platforms.json, for which packages are published."""
    found: dict[str, dict[str, str]] = json.loads(
        (Path(__file__).parent / "platforms.json").read_text()
    )
    return found


def write(directory: Path, manifest: dict[str, Any], readme: str, files: dict[str, Path]) -> None:
    """Writes the directory of one package. `files` has the source of each file in it."""
    directory.mkdir(parents=True)
    (directory / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")
    (directory / "README.md").write_text(readme, encoding="utf-8")
    for name, source in {"LICENSE": ROOT / "LICENSE", **files}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, directory / name)


def main_manifest() -> dict[str, Any]:
    """Returns the manifest in the repository, with the platform packages as dependencies."""
    manifest: dict[str, Any] = json.loads((SOURCES / "package.json").read_text())
    version = manifest["version"]
    return manifest | {
        "optionalDependencies": {f"{home().scope}/{platform}": version for platform in platforms()}
    }


def platform_manifest(platform: str) -> dict[str, Any]:
    """Returns the manifest of the package with the addon of one platform."""
    main = main_manifest()
    fields = platforms()[platform]
    return {
        "name": f"{home().scope}/{platform}",
        "description": f"The addon of quorlock for {platform}",
        **{name: main[name] for name in SHARED},
        "type": "commonjs",
        "main": "quorlock.node",
        "files": ADDON_FILES,
        **{name: [fields[name]] for name in ("os", "cpu", "libc") if name in fields},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("addons", type=Path)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    given = {path.name for path in arguments.addons.iterdir()}
    if unknown := given - platforms().keys():
        raise SystemExit(f"not in platforms.json: {', '.join(sorted(unknown))}")
    if arguments.all and (missing := platforms().keys() - given):
        raise SystemExit(f"no addon for {', '.join(sorted(missing))}")
    shutil.rmtree(arguments.out, ignore_errors=True)
    manifest = main_manifest()
    files = {name: SOURCES / name for name in manifest["files"]}
    files[SKILL] = ROOT / "bindings-python" / "python" / "quorlock" / SKILL
    readme = (SOURCES / "README.md").read_text(encoding="utf-8")
    write(arguments.out / "quorlock", manifest, readme, files)
    for platform in sorted(given):
        name = f"{home().scope}/{platform}"
        files = {file: arguments.addons / platform / file for file in ADDON_FILES}
        readme = README.format(name=name, platform=platform)
        write(arguments.out / platform, platform_manifest(platform), readme, files)


if __name__ == "__main__":
    main()
