"""Every program in the documentation runs. Only the addresses of the nodes are replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.blocks import Block, blocks, pages
from docs.running import command, environment, on_real_nodes, run
from servers import Servers

PROGRAMS = [block for page in pages() for block in blocks(page) if block.language != "rust"]


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs(block: Block, servers: Servers, tmp_path: Path) -> None:
    if block.skipped:
        pytest.skip(block.skipped)
    for server in servers:
        server.command("FLUSHALL")
    program = command(block, on_real_nodes(block.code, servers), tmp_path)
    status, printed = run(program, tmp_path, environment(servers))
    assert status == 0, f"{block} exited with {status}:\n{printed}"
    assert "Traceback (most recent call last)" not in printed, f"{block}:\n{printed}"
    if block.printed:
        assert re.fullmatch(block.printed, printed.strip()), f"{block} printed:\n{printed}"


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_first_program_of_the_readme_prints_a_fence(
    language: str, servers: Servers, tmp_path: Path
) -> None:
    first = next(block for block in PROGRAMS if block.language == language)
    assert first.page.name == "README.md"
    program = command(first, on_real_nodes(first.code, servers), tmp_path)
    _, printed = run(program, tmp_path, environment(servers))
    assert re.match(r"held; write with fence \d{16}\n", printed)
