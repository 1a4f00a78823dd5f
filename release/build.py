"""Builds the packages for this machine.

    python release/build.py OUT [PROFILE]

OUT gets the wheel, the sdist, and the npm packages as tarballs, compiled with the cargo profile
`release`. Tests of the packaging itself can name a quicker profile. Published packages are built by
.github/workflows/release.yml with the same scripts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import licenses
import npm
from for_platform import LIBRARIES

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Runs a command, and shows its output only if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def compile_with(*command: str | Path, step: str) -> None:
    """Runs a command that compiles for minutes. Shows the step and the command's output on
    stderr."""
    began = time.monotonic()
    print(f"{step} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    print(f"{step}: done in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def this_platform() -> str:
    """Returns the name of this machine's platform, as in platforms.json."""
    host = licenses.host()
    for name, fields in npm.platforms().items():
        if fields["target"] == host:
            return name
    raise SystemExit(f"no npm package is published for {host}")


def build_addon(profile: str) -> Path:
    """Compiles the native libraries, and returns the path of the one for Node.js."""
    command = ["make", "--no-print-directory", "native", f"PROFILE={profile}"]
    compile_with(*command, step="1/3  Compiling quorlock")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / profile / LIBRARIES[npm.platforms()[this_platform()]["os"]]


def build(out: Path, profile: str) -> None:
    """Builds all packages."""
    library = build_addon(profile)
    scripts = Path(__file__).parent
    python = sys.executable
    run(python, scripts / "licenses.py", ROOT / "LICENSE-THIRD-PARTY")
    maturin = [python, "-m", "maturin"]
    options = ["--locked", "--profile", profile]
    wheel: list[str | Path] = [*maturin, "build", *options, "--interpreter", python, "--out", out]
    compile_with(*wheel, step="2/3  Building the Python wheel")
    print("3/3  Packing the source distribution and the npm packages", file=sys.stderr, flush=True)
    run(*maturin, "sdist", "--out", out)
    addon = out / "addons" / this_platform()
    addon.mkdir(parents=True)
    shutil.copy(library, addon / "quorlock.node")
    shutil.copy(ROOT / "LICENSE-THIRD-PARTY", addon)
    run(python, scripts / "npm.py", out / "npm", out / "addons")
    for package in (out / "npm").iterdir():
        run("npm", "pack", "--ignore-scripts", "--pack-destination", out, cwd=package)


def sizes(out: Path) -> dict[str, int]:
    """Returns the sizes of the packages and of the native libraries in them, in bytes."""
    found = {path.name: path.stat().st_size for path in sorted(out.glob("*.*"))}
    for member in zipfile.ZipFile(next(out.glob("*.whl"))).infolist():
        if member.filename.endswith((".so", ".pyd")):
            found[Path(member.filename).name] = member.file_size
    addon = out / "addons" / this_platform() / "quorlock.node"
    return {**found, addon.name: addon.stat().st_size}


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    profile = sys.argv[2] if len(sys.argv) > 2 else "release"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build(out, profile)
    print(f"The packages are in {out}. Their sizes in bytes:")
    print(json.dumps(sizes(out), indent=2))


if __name__ == "__main__":
    main()
