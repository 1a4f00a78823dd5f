"""Parses the code blocks of the documentation, and the directives that say how to test them.

A fenced block that is marked `python`, `js`, `ts`, `sh` or `rust` is a program. A block that does
not import the client continues the previous block of the same language on the page. Each `sh`
block is a program of its own. Comment lines directly before a block are directives:

    <!-- test: skip (reason) -->  do not run the block
    <!-- test: continues -->      continue the previous block, although this one imports the client
    <!-- test: alone -->          start a new program, although this one does not import the client
    <!-- test: prints REGEX -->   the whole output must match
    <!-- file: PATH -->           the block is that file, which has its own tests; it is not run
    <!-- file: PATH (part) -->    the block is a run of consecutive lines of that file
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = [ROOT / part / "README.md" for part in ("bindings-node", "bindings-python", "core")]
"""The pages that are shown by package registries."""

SKILL = ROOT / "bindings-python/python/quorlock/.agents/skills/quorlock/SKILL.md"
"""The skill file for coding agents, which the wheel and the npm package contain."""

PROGRAMS = ("python", "js", "ts", "sh", "rust")
NO_PROGRAMS = (
    *("text", "console", "yaml", "toml", "json", "lua", "sql", "ini"),
    *("c", "csharp", "go", "java", "php", "ruby"),
)
"""Languages of blocks that are not run, in addition to blocks without a language."""

_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}) *(?P<language>[\w+-]*)(?P<more>.*)")
_DIRECTIVE = re.compile(
    r" *<!-- test: (?P<name>skip|continues|alone|prints)(?: (?P<value>.+))? -->"
)
_FILE = re.compile(r" *<!-- file: (?P<path>\S+)(?P<part> \(part\))? -->")
_CLIENT = {
    "python": r"^\s*(import quorlock|from quorlock import .*\bClient\b)",
    "js": r"^import .*\bClient\b.* from 'quorlock'|\bClient\b.*require\('quorlock'\)",
    "ts": r"^import .*\bClient\b.* from 'quorlock'",
    "rust": r"^use quorlock::(.*\bClient\b|\*)",
    "sh": "",  # each block is a program
}
"""For each language, a pattern of the line that imports the client. A block with such a line begins
a new program."""

_INSTALLATION = re.compile(
    r"(pip3?|npm|cargo|uv|apt-get|brew) (install|add) .*"
    r"|python3 -m venv venv|\. venv/bin/activate|cargo new orders|cd orders"
)
"""Commands that install something, or create the place for it. They are not run here, but by
tests/packages."""


class DocumentError(Exception):
    """A page has an invalid block or directive."""


@dataclass(frozen=True)
class Block:
    """A program, made of one or several blocks."""

    page: Path
    line: int
    """The line number of the fence."""
    language: str
    code: str
    """The code, padded with empty lines so that its line numbers are those of the page."""
    attributes: str = ""
    """The text after the language, such as `no_run`."""
    skipped: str = ""
    """The reason why the program is not run; empty if it is run."""
    printed: str = ""
    """A regular expression for the expected output."""

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


@dataclass(frozen=True)
class Copy:
    """A block that is a copy of a file, or of a part of it."""

    page: Path
    line: int
    """The line number of the fence."""
    file: Path
    is_part: bool
    code: str
    """The code, without the indentation of the fence."""
    indent: str
    """The indentation of the fence."""

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


@dataclass
class _Directives:
    """The directives before a block."""

    found: dict[str, str] = field(default_factory=dict)
    file: Path | None = None
    is_part: bool = False

    def read(self, location: str, line: str) -> None:
        if match := _DIRECTIVE.fullmatch(line):
            self.found[match["name"]] = match["value"] or ""
            if match["name"] in ("skip", "prints") and not match["value"]:
                raise DocumentError(f"{location}: `{match['name']}` requires an argument")
        elif match := _FILE.fullmatch(line):
            self.file, self.is_part = ROOT / match["path"], bool(match["part"])
            if not self.file.is_file():
                raise DocumentError(f"{location}: {match['path']} does not exist")
        elif "<!-- test" in line or "<!-- file" in line:
            raise DocumentError(f"{location}: unknown directive: {line.strip()}")
        elif line.strip():
            self.found, self.file = {}, None


@dataclass(frozen=True)
class _Fenced:
    """A fenced block of any language."""

    number: int
    """The line number of the fence."""
    fence: re.Match[str]
    code: str
    directives: _Directives


def name(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)


def pages() -> list[Path]:
    """Returns the pages whose blocks are tested."""
    return [ROOT / "README.md", *PACKAGES, SKILL, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Returns the programs on a page. Blocks that continue others are joined with them."""
    found: dict[str, list[Block]] = {}
    for block, continues in _read(page):
        programs = found.setdefault(block.language, [])
        if continues and programs:
            programs[-1] = _joined(programs[-1], block)
        else:
            programs.append(block)
    return sorted((each for every in found.values() for each in every), key=lambda each: each.line)


def _joined(first: Block, second: Block) -> Block:
    """Joins two blocks into one program. The program is skipped if either block is skipped."""
    gap = "\n" * (second.line - first.code.count("\n"))
    return replace(
        first,
        code=first.code + gap + second.code[second.line :],
        skipped=first.skipped or second.skipped,
        printed=first.printed + second.printed,
    )


def copies(page: Path) -> list[Copy]:
    """Returns the blocks of a page that are copies of files, in any language."""
    return [
        Copy(page, each.number, given.file, given.is_part, each.code, each.fence["indent"])
        for each in _fenced(page)
        if (given := each.directives).file is not None
    ]


def _read(page: Path) -> Iterator[tuple[Block, bool]]:
    """Yields each program, and whether it continues the previous block of its language."""
    for each in _fenced(page):
        location, language = f"{name(page)}:{each.number}", each.fence["language"]
        if language in PROGRAMS and each.directives.file is None:
            given = each.directives.found
            block = Block(
                page,
                each.number,
                language,
                "\n" * each.number + each.code,
                attributes=each.fence["more"].strip(" ,"),
                skipped=given.get("skip", "") or _skipped(language, each.code),
                printed=given.get("prints", ""),
            )
            yield block, _continues(block, given)
        elif language and language not in PROGRAMS + NO_PROGRAMS:
            known = ", ".join(PROGRAMS + NO_PROGRAMS)
            raise DocumentError(f"{location}: the language of a block must be one of {known}")


def _fenced(page: Path) -> Iterator[_Fenced]:
    """Yields each fenced block with the directives before it."""
    directives = _Directives()
    lines = iter(enumerate(page.read_text().splitlines(), start=1))
    for number, line in lines:
        location = f"{name(page)}:{number}"
        fence = _FENCE.fullmatch(line)
        if fence is None:
            directives.read(location, line)
            continue
        inside = _inside(location, fence, (line for _, line in lines))
        yield _Fenced(number, fence, inside, directives)
        directives = _Directives()


def _inside(location: str, fence: re.Match[str], lines: Iterator[str]) -> str:
    taken: list[str] = []
    for line in lines:
        if line.strip() == fence["ticks"]:
            return "".join(f"{each}\n" for each in taken)
        if not line.startswith(fence["indent"]) and line.strip():
            raise DocumentError(f"{location}: a line of the block is indented less than its fence")
        taken.append(line[len(fence["indent"]) :])
    raise DocumentError(f"{location}: the block is not closed")


def _skipped(language: str, code: str) -> str:
    commands = [line.split("  #")[0].strip() for line in code.splitlines() if line.strip()]
    if language == "sh" and all(_INSTALLATION.fullmatch(each) for each in commands):
        return "installs something"
    return ""


def _continues(block: Block, directives: dict[str, str]) -> bool:
    if "continues" in directives or "alone" in directives:
        return "continues" in directives
    return not re.search(_CLIENT[block.language], block.code, re.MULTILINE)
