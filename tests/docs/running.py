"""Runs the programs of the documentation on real nodes, with a time limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.blocks import ROOT, Block
from servers import Servers

TIMEOUT = 60.0
"""The time limit of a program in seconds, which allows for a loaded machine."""

TSC = [
    str(ROOT / "node_modules" / ".bin" / "tsc"),
    *("--strict", "--exactOptionalPropertyTypes", "--skipLibCheck"),
    *("--target", "es2022", "--lib", "es2022,esnext.disposable,dom"),
    *("--module", "nodenext", "--types", "node", "--typeRoots", "node_modules/@types"),
]

_NODE = re.compile(
    r"(?<=redis://)(?P<user>[^/@\s\"']*@)?"
    r"(10\.0\.0\.(?P<number>[1-5])(:6379)?|127\.0\.0\.1(:(?P<port>6379|6380|6381))?)(?![\d.:])"
)


def on_real_nodes(code: str, servers: Servers) -> str:
    """Replaces the addresses of nodes in the code with those of the servers.

    10.0.0.1 to 10.0.0.5 are the servers in order, and so are the ports 6379 to 6381 of 127.0.0.1.
    """

    def real(match: re.Match[str]) -> str:
        local = int(match["port"] or 6379) - 6378
        server = servers[int(match["number"] or local) - 1]
        return f"{match['user'] or ''}127.0.0.1:{server.port}"

    return _NODE.sub(real, code)


def environment(servers: Servers) -> dict[str, str]:
    """Returns the environment of the programs: three nodes, and the packages of `make build`."""
    found = [
        str(Path(sys.executable).parent),
        str(ROOT / "node_modules" / ".bin"),
        os.environ["PATH"],
    ]
    return {
        **os.environ,
        "QUORLOCK_NODES": ",".join(servers.urls[:3]),
        "PATH": os.pathsep.join(found),
        "PYTHONPATH": "",
    }


def command(block: Block, code: str, directory: Path) -> list[str]:
    """Writes the program to a file named after its page, and returns the command that runs it."""
    stem = block.page.stem
    if block.language == "sh":
        (directory / f"{stem}.sh").write_text(code)
        return ["bash", "-euo", "pipefail", f"{stem}.sh"]
    if block.language == "python":
        (directory / f"{stem}.py").write_text(code)
        return [sys.executable, str(Path(__file__).parent / "awaiting.py"), f"{stem}.py"]
    (directory / "node_modules").symlink_to(ROOT / "node_modules")
    if block.language == "ts":
        (directory / f"{stem}.mts").write_text(code)
        checked, printed = run([*TSC, f"{stem}.mts"], directory)
        assert checked == 0, f"{block}:\n{printed}"
        return ["node", f"{stem}.mjs"]
    suffix = "cjs" if "require(" in code and "import " not in code else "mjs"
    (directory / f"{stem}.{suffix}").write_text(code)
    return ["node", f"{stem}.{suffix}"]


def run(
    program: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Runs the program, and returns its exit status and output.

    Kills the program and its children at the time limit.
    """
    with subprocess.Popen(
        program,
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            printed += f"\n(killed after {TIMEOUT:g} s)"
    return process.returncode, printed
