"""The README's quick starts run as printed, but for the port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Servers

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("language", "command"),
    [("python", [sys.executable, "-"]), ("js", ["node", "--input-type=module", "-"])],
)
def test_a_quick_start_runs_as_printed(
    language: str, command: list[str], start_servers: Callable[..., Servers]
) -> None:
    servers = start_servers(1)
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = blocks[0].replace("redis://127.0.0.1:6379", servers.urls[0])
    assert servers.urls[0] in program
    run = subprocess.run(
        command, input=program, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert run.stderr == ""
    assert re.fullmatch(r"held; write with fence \d{16}\n", run.stdout)
