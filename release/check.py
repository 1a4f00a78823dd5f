"""Builds and tests the packages of this machine as a release does, publishes nothing, and prints a
table of the results.

    python release/check.py

Needs Linux x64. The packages and the output of each check are in build/release-check. Takes about
forty minutes with two processors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import command
import home
import licenses
import npm
import version

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "release-check"
PACKAGES = OUT / "packages"
REPORT = OUT / "tests.xml"
TOOLS = ROOT / ".cache" / "release-check"

CARGO_DENY = "0.20.2"


class CheckError(Exception):
    """A check has failed. The message says why, in one line."""


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    name: str
    result: str
    seconds: float
    detail: str

    def line(self) -> str:
        return f"{self.name:<56} {self.result:<7} {self.seconds:6.0f} s  {self.detail}"


def run(name: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Runs a command. Its output is added to the log of the check `name`, and returned."""
    try:
        done = subprocess.run(
            arguments,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CheckError(str(error)) from error
    log = OUT / (re.sub(r"\W+", "-", name) + ".log")
    with log.open("a") as file:
        file.write(f"$ {' '.join(map(str, arguments))}\n{done.stdout}\n")
    if done.returncode:
        raise CheckError(f"see {log.relative_to(ROOT)}")
    return done.stdout


def install(name: str, requirements: str) -> Path:
    """Installs the tools of a file in this directory. Returns the directory of their programs."""
    run(name, sys.executable, "-m", "venv", TOOLS)
    file = Path(__file__).parent / requirements
    run(name, TOOLS / "bin" / "pip", "install", "--quiet", "--requirement", file)
    return TOOLS / "bin"


def versions(name: str) -> str:
    return run(name, sys.executable, "release/version.py").strip()


def homes(name: str) -> str:
    run(name, sys.executable, "release/home.py")
    return home.home().repository


def documentation(name: str) -> str:
    return run(name, "make", "--no-print-directory", "docs").strip().splitlines()[-1]


def allowed_licences(name: str) -> str:
    options = ["--quiet", "--locked", "--root", str(TOOLS)]
    run(name, "cargo", "install", *options, f"cargo-deny@{CARGO_DENY}")
    deny = TOOLS / "bin" / "cargo-deny"
    return run(name, deny, "--locked", "check", "licenses", "bans", "sources").strip()


def docs_rs(name: str) -> str:
    """Builds the pages of the libraries as docs.rs does, with unstable features of the compiler."""
    unstable = {"RUSTC_BOOTSTRAP": "1", "RUSTDOCFLAGS": "--cfg docsrs -D warnings"}
    for crate in ["quorlock-protocol", "quorlock"]:
        run(name, "cargo", "doc", "--locked", "--no-deps", "--package", crate, env=unstable)
    return ""


def cargo_publish(name: str) -> str:
    options = ["--workspace", "--locked", "--dry-run", "--allow-dirty"]
    return counted(run(name, "cargo", "publish", *options).count("aborting upload"), "crates")


def build(name: str) -> str:
    run(name, sys.executable, "release/build.py", PACKAGES, "release")
    return counted(len(list(PACKAGES.glob("*.*"))), "packages")


def twine_check(name: str) -> str:
    files = [*PACKAGES.glob("*.whl"), *PACKAGES.glob("*.tar.gz")]
    run(name, install(name, "check-requirements.txt") / "twine", "check", "--strict", *files)
    return counted(len(files), "files")


def npm_publish(name: str) -> str:
    tarballs = sorted(PACKAGES.glob("*.tgz"))
    for tarball in tarballs:
        run(name, "npm", "publish", tarball, "--dry-run", "--access", "public", "--tag", "next")
    return counted(len(tarballs), "tarballs")


def counted(count: int, what: str) -> str:
    """Returns what a check has looked at. Fails if that is nothing."""
    if not count:
        raise CheckError(f"no {what}")
    return f"{count} {what}"


def static_command(name: str) -> str:
    """Builds the archive of the command for Linux x64, and starts its program."""
    platform = "linux-x64-musl"
    path = f"{install(name, 'requirements.txt')}:{os.environ['PATH']}"
    run(name, "rustup", "target", "add", npm.platforms()[platform]["target"])
    run(name, sys.executable, "release/command.py", platform, OUT / "command", env={"PATH": path})
    with tarfile.open(OUT / "command" / command.archive_name(platform)) as archive:
        archive.extract(f"{command.stem(platform)}/quorlock", OUT, filter="data")
    program = OUT / command.stem(platform) / "quorlock"
    began = time.monotonic()
    run(name, program, "--version")
    started = 1000 * (time.monotonic() - began)
    return f"{program.stat().st_size / 1e6:.1f} MB, starts in {started:.0f} ms"


def checked(name: str, check: Callable[[str], str]) -> Result:
    """Runs one check."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        result, detail = "passed", check(name)
    # Whatever the error is, the table must be printed.
    except (Exception, SystemExit) as error:
        result, detail = "FAILED", str(error) or repr(error)
    return Result(name, result, time.monotonic() - began, detail)


def tests(name: str) -> str:
    """Runs the tests of the packages, on the packages in build/release-check."""
    options = ["-q", "-n", "auto", "--dist", "loadfile", f"--junitxml={REPORT}"]
    settings = {"PACKAGES": str(PACKAGES), "PACKAGES_PROFILE": "release", "TOOLS": "full"}
    printed = run(name, sys.executable, "-m", "pytest", *options, "tests/packages", env=settings)
    return printed.strip().splitlines()[-1].strip("= ")


CHECKS: dict[str, Callable[[str], str]] = {
    "version": versions,
    "repository and npm scope": homes,
    "documentation and its links": documentation,
    "licences": allowed_licences,
    "pages on docs.rs": docs_rs,
    "cargo publish": cargo_publish,
    "packages, as published": build,
    "twine check": twine_check,
    "npm publish": npm_publish,
    "command, as published": static_command,
    "tests of the packages": tests,
}


def managers() -> Iterator[Result]:
    """Yields a line for each installation with a package manager, from the report of the tests. A
    manager that could not be tried has failed."""
    for case in ET.parse(REPORT).iter("testcase") if REPORT.exists() else []:
        if "test_managers" in case.get("classname", ""):
            name = case.get("name", "").removeprefix("test_").replace("_", " ")
            others = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            result = "FAILED" if others else "passed"
            yield Result(name, result, float(case.get("time", 0)), ", ".join(others))


def main() -> int:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    results = [checked(name, check) for name, check in CHECKS.items()]
    results += managers()
    print(f"{version.version()}, on {licenses.host()}")
    for result in results:
        print(result.line())
    return 1 if any(result.result == "FAILED" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
