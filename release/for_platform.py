"""Builds the published packages of one platform: the wheels, and the addon with its licences.

    python release/for_platform.py PLATFORM OUT

PLATFORM is a name in platforms.json. OUT gets wheels/ and addons/PLATFORM/. For Linux, zig links
against glibc 2.17 or musl 1.2, independent of this machine. Packages for other systems must be
built on them.

One wheel is for all versions of CPython with the GIL. Free-threaded builds need a wheel for CPython
3.14, and one for 3.15 and later (`abi3t`), and the interpreters to build them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import npm

ROOT = Path(__file__).resolve().parent.parent
WHEELS = {"": "cp311-abi3", "python3.14t": "cp314-cp314t", "python3.15t": "cp315-abi3"}
"""How the tags of each wheel begin, by the interpreter that builds it. The first one needs none."""

GLIBC = "2.17"
COMPATIBILITY = {"glibc": "manylinux_2_17", "musl": "musllinux_1_2"}
LIBRARIES = {
    "linux": "libquorlock_node.so",
    "darwin": "libquorlock_node.dylib",
    "win32": "quorlock_node.dll",
}


def run(*command: str | Path) -> None:
    """Runs a command in the root of the repository."""
    print(*command, file=sys.stderr, flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    platform, out = sys.argv[1], Path(sys.argv[2]).resolve()
    fields = npm.platforms()[platform]
    target, libc = fields["target"], fields.get("libc")
    addon = out / "addons" / platform
    addon.mkdir(parents=True)
    options = ["--release", "--locked", "--target", target]
    wheel = [sys.executable, "-m", "maturin", "build", *options, "--out", str(out / "wheels")]
    build = ["cargo", "build", *options]
    if libc:
        wheel += ["--zig", "--compatibility", COMPATIBILITY[libc]]
        build = ["cargo", "zigbuild", *options]
    if libc == "glibc":
        build[-1] = f"{target}.{GLIBC}"
    if libc == "musl":
        # Link musl dynamically: the library is loaded by a program that uses its own musl.
        os.environ["RUSTFLAGS"] = "-C target-feature=-crt-static"
    licences = ROOT / "LICENSE-THIRD-PARTY"
    run(sys.executable, ROOT / "release" / "licenses.py", "--target", target, licences)
    for interpreter, tags in WHEELS.items():
        run(*wheel, *(["--interpreter", interpreter] if interpreter else []))
        # maturin takes the stable ABI from the features and the interpreters that it finds.
        if not list(out.glob(f"wheels/*-{tags}*.whl")):
            built = [path.name for path in out.glob("wheels/*.whl")]
            raise SystemExit(f"there is no wheel for {tags} among {built}")
    run(*build, "--package", "quorlock-node")
    library = ROOT / "target" / target / "release" / LIBRARIES[fields["os"]]
    shutil.copy(library, addon / "quorlock.node")
    shutil.copy(licences, addon)


if __name__ == "__main__":
    main()
