"""The statements about other libraries in docs/migration are true for the named releases.

Each statement is a function in facts/. It is skipped if the library cannot be installed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from interop.installing import NODE, PYTHON, Ecosystem
from servers import Servers
from waiting import TIMEOUT

FACTS = Path(__file__).resolve().parent / "facts"


@dataclass(frozen=True)
class Fact:
    program: Path
    name: str

    @property
    def ecosystem(self) -> Ecosystem:
        return NODE if self.program.suffix == ".cjs" else PYTHON

    def __str__(self) -> str:
        return f"{self.program.stem}-{self.name}"


def facts() -> Iterator[Fact]:
    for program in sorted(FACTS.iterdir()):
        pattern = r"^  async (\w+)\(nodes\)" if program.suffix == ".cjs" else r"^def (\w+)\(dead"
        names = re.findall(pattern, program.read_text(), re.MULTILINE)
        assert names, f"{program} has no facts"
        yield from (Fact(program, name) for name in names)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Four servers, of which the first one is down."""
    with Servers(4) as servers:
        servers[0].kill()
        yield servers


@pytest.mark.parametrize("fact", list(facts()), ids=str)
def test_a_statement_about_another_library_is_true(
    fact: Fact, servers: Servers, install: Callable[[Ecosystem], str | None]
) -> None:
    if reason := install(fact.ecosystem):
        pytest.skip(f"the libraries cannot be installed: {reason}")
    for server in list(servers)[1:]:
        server.command("FLUSHALL")
    subprocess.run(
        [fact.ecosystem.program[0], fact.program, fact.name, *servers.urls],
        env={**os.environ, **fact.ecosystem.environment},
        timeout=TIMEOUT,
        check=True,
    )
