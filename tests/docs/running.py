"""Runs the programs of the documentation, with a time limit, on real nodes."""

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
"""Seconds that a program may take, on a machine that is busy with other things."""

TSC = [
    str(ROOT / "node_modules" / ".bin" / "tsc"),
    *("--strict", "--exactOptionalPropertyTypes", "--skipLibCheck"),
    *("--target", "es2022", "--lib", "es2022,esnext.disposable,dom"),
    *("--module", "nodenext", "--types", "node", "--typeRoots", "node_modules/@types"),
]

_NODE = re.compile(
    r"(?<=redis://)(?P<user>[^/@\s\"']*@)?(10\.0\.0\.(?P<number>[1-5])|127\.0\.0\.1)"
    r"(:6379)?(?![\d.:])"
)


def on_real_nodes(code: str, servers: Servers) -> str:
    """The code with the nodes that it names exchanged for servers; 127.0.0.1 is the first one."""

    def real(match: re.Match[str]) -> str:
        server = servers[int(match["number"] or 1) - 1]
        return f"{match['user'] or ''}127.0.0.1:{server.port}"

    return _NODE.sub(real, code)


def environment(servers: Servers) -> dict[str, str]:
    """What the programs find: three nodes, and what `make build` has made."""
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
    """Writes the program, named like its page, and says how it is run."""
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
    """The exit status, and all that was printed; ends the program, and all that it started, when
    its time is up."""
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
            printed += f"\n(ended after {TIMEOUT:g} s)"
    return process.returncode, printed
