"""Prepares the demo: checks the tools, provides a Redis server and compiles quorlock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "bindings-python" / "python" / "quorlock" / "_quorlock.abi3.so"
ADDON = ROOT / "bindings-node" / "quorlock.node"

TOOLS = {
    "cargo": "Rust 1.88 or later (https://rustup.rs)",
    "cc": "a C compiler, such as gcc or clang",
    "node": "Node.js 20.19 or later (https://nodejs.org)",
}
OLDEST_NODE = (20, 19)


class PrepareError(Exception):
    """Why the demo cannot run here."""


def find_server() -> str | None:
    """The server program that the demo will use, if there is one."""
    wanted = os.environ.get("REDIS_SERVER")
    names = [wanted] if wanted else ["redis-server", "valkey-server"]
    return next(filter(None, map(shutil.which, names)), None)


def plan(seconds: float) -> str:
    """The steps, what each does to this machine, and how long it takes."""
    server = find_server()
    managers = ["apt-get", "dnf", "apk", "pacman", "brew"]
    manager = next(filter(shutil.which, managers), "the system's package manager")
    get = (
        f"found at {server}"
        if server
        else f"install one with {manager}; no service is started, now or at boot"
    )
    compiled = MODULE.exists() and ADDON.exists()
    build = (
        "seconds, as it was compiled before"
        if compiled
        else "about two minutes on two cores; cargo downloads crates"
    )
    return (
        f"1/3  Redis server: {get}\n"
        f"2/3  Compile quorlock in this directory: {build}\n"
        f"3/3  Run for {seconds:g} s in a temporary directory, which is deleted afterwards,\n"
        "     and draw a timeline of the run in the directory build\n"
        "Nothing else is installed or changed. Ctrl-C ends it at any time.\n"
    )


def prepare() -> None:
    """Do the first two steps. Raises PrepareError."""
    _check_tools()
    if (wanted := os.environ.get("REDIS_SERVER")) and not find_server():
        raise PrepareError(f"REDIS_SERVER names no program that can be run: {wanted}")
    if server := find_server():
        print(f"1/3  Redis server: {server}", flush=True)
    else:
        _step("1/3  Installing a Redis server", "redis")
    _step("2/3  Compiling quorlock", "native")


def _check_tools() -> None:
    missing = [what for name, what in TOOLS.items() if shutil.which(name) is None]
    if shutil.which("node"):
        version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
        found = re.match(r"v(\d+)\.(\d+)", version.stdout)
        if not found or tuple(map(int, found.groups())) < OLDEST_NODE:
            missing.append(f"{TOOLS['node']}; {version.stdout.strip()} is too old")
    if missing:
        raise PrepareError("\n".join(["The demo needs:", *(f"- {what}" for what in missing)]))


def _step(title: str, target: str) -> None:
    """Run a target of the Makefile. On a terminal, show the last line of its output."""
    began = time.monotonic()
    # Without the flags of the `make` that runs the demo, such as its job server.
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    output = []
    print(f"{title} ...", end="" if sys.stdout.isatty() else "\n", flush=True)
    with subprocess.Popen(
        [os.environ.get("MAKE", "make"), "--no-print-directory", target],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            output.append(line)
            _rewrite(f"{title} ... {time.monotonic() - began:.0f} s: {line.strip()}")
    _rewrite("")
    if process.returncode:
        raise PrepareError(f"{title}: failed\n{''.join(output)}")
    print(f"{title}: done in {time.monotonic() - began:.0f} s", flush=True)


def _rewrite(line: str) -> None:
    """On a terminal, replace the current line."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{line[: width - 1]}", end="", flush=True)
