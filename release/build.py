"""Builds the packages for this machine from the build of `make build`.

    python release/build.py OUT

OUT gets the wheel, the sdist, and the npm packages as tarballs. Published packages are built by
.github/workflows/release.yml with the same scripts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import licenses
import npm

ROOT = Path(__file__).resolve().parent.parent
ADDON = ROOT / "bindings-node" / "quorlock.node"


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Runs a command, and shows its output only if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def this_platform() -> str:
    """Returns the name of this machine's platform, as in platforms.json."""
    host = licenses.host()
    for name, fields in npm.platforms().items():
        if fields["target"] == host:
            return name
    raise SystemExit(f"no npm package is published for {host}")


def build(out: Path) -> None:
    """Builds all packages."""
    scripts = Path(__file__).parent
    python = sys.executable
    run(python, scripts / "licenses.py", ROOT / "LICENSE-THIRD-PARTY")
    # With another interpreter than in `make build`, everything would be compiled again.
    maturin = [python, "-m", "maturin"]
    run(*maturin, "build", "--release", "--locked", "--interpreter", python, "--out", out)
    run(*maturin, "sdist", "--out", out)
    addon = out / "addons" / this_platform()
    addon.mkdir(parents=True)
    shutil.copy(ADDON, addon)
    shutil.copy(ROOT / "LICENSE-THIRD-PARTY", addon)
    run(python, scripts / "npm.py", out / "npm", out / "addons")
    for package in (out / "npm").iterdir():
        run("npm", "pack", "--ignore-scripts", "--pack-destination", out, cwd=package)


def sizes(out: Path) -> dict[str, int]:
    """Returns the sizes of the packages and of the native libraries in them, in bytes."""
    native = next((ROOT / "bindings-python" / "python" / "quorlock").glob("_quorlock.*.so"))
    return {path.name: path.stat().st_size for path in [*sorted(out.glob("*.*")), native, ADDON]}


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    build(out)
    print(json.dumps(sizes(out), indent=2))


if __name__ == "__main__":
    main()
