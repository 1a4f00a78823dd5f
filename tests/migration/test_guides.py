"""The code for other libraries in docs/migration/ runs with these libraries, on real nodes.

The blocks of one library on one page form one program. They are marked

    <!-- test: skip (tests/migration runs it, with LIBRARY) -->

because tests/docs, which runs all other blocks, does not install other libraries.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from interop.installing import CACHE, GO, NODE, PYTHON, Ecosystem
from servers import Servers
from waiting import TIMEOUT, wait_until

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "migration"

BLOCK = re.compile(
    r"<!-- test: skip \(tests/migration runs it, with ([\w-]+)\) -->\n```(\w+)\n(.*?)```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Program:
    page: str
    library: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.library}"

    @property
    def ecosystem(self) -> Ecosystem:
        return {"js": NODE, "python": PYTHON, "go": GO}[self.language]

    def run(self, urls: Sequence[str]) -> None:
        text = re.sub(
            r"redis://10\.0\.0\.([123])(:6379)?", lambda match: urls[int(match[1]) - 1], self.text
        )
        # The program must be in this directory to find its libraries.
        with tempfile.TemporaryDirectory(dir=CACHE / self.ecosystem.directory) as directory:
            command: Sequence[str | Path]
            if self.language == "go":
                file, command = "main.go", ["go", "run", "."]
                for name in ("go.mod", "go.sum"):
                    shutil.copyfile(CACHE / "go" / name, Path(directory, name))
            elif self.language == "js":
                file, command = "main.mjs", ["node", "main.mjs"]
                if self.library == "redlock-5":
                    text = text.replace("'redlock'", "'redlock5'")
            else:
                file, command = "main.py", [PYTHON.program[0], "main.py"]
            Path(directory, file).write_text(text)
            subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, **self.ecosystem.environment},
                timeout=TIMEOUT,
                check=True,
            )


def programs() -> Iterator[Program]:
    for page in sorted(GUIDES.glob("*.md")):
        texts: dict[tuple[str, str], str] = {}
        for library, language, text in BLOCK.findall(page.read_text()):
            texts[library, language] = texts.get((library, language), "") + text + "\n"
        for (library, language), text in texts.items():
            yield Program(page.stem, library, language, text)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers(3) as servers:
        yield servers


@pytest.mark.parametrize("program", list(programs()), ids=str)
def test_the_code_for_other_libraries_runs(
    program: Program, servers: Servers, install: Callable[[Ecosystem], str | None]
) -> None:
    if reason := install(program.ecosystem):
        pytest.skip(f"{program.library} cannot be installed: {reason}")
    for server in servers:
        server.command("FLUSHALL")
    program.run(servers.urls)
    # Two libraries leave keys that expire later: pottery leaves the key of a late grant,
    # python-redis-lock leaves the key of its signal.
    wait_until(lambda: all(server.command("DBSIZE") == 0 for server in servers))


def test_every_guide_has_code_that_is_run() -> None:
    guides = {page.stem for page in GUIDES.glob("*.md")} - {"index"}
    assert guides == {program.page for program in programs()}
