"""The documentation's code blocks, and how each of them is tested.

A fenced block that is marked `python`, `js`, `ts`, `sh` or `rust` is a program. One that does not
import the client goes on from the block before it, of the same language on the same page (`sh`
never does). Comment lines right before a block say more:

    <!-- test: skip (why it cannot run) -->
    <!-- test: continues -->      it goes on from the block before, though it imports the client
    <!-- test: alone -->          it does not, though it does not import the client
    <!-- test: prints REGEX -->   what it prints has to match, as a whole
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = [ROOT / part / "README.md" for part in ("bindings-node", "bindings-python", "core")]
"""The pages that the registries show."""

PROGRAMS = ("python", "js", "ts", "sh", "rust")
NO_PROGRAMS = ("text", "console", "yaml", "toml", "json", "lua", "sql", "ini", "go", "ruby")
"""What is shown, and not run. (A block without a language is, too.)"""

_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}) *(?P<language>[\w+-]*)(?P<more>.*)")
_DIRECTIVE = re.compile(
    r" *<!-- test: (?P<name>skip|continues|alone|prints)(?: (?P<value>.+))? -->"
)
_CLIENT = {
    "python": r"^\s*(import quorlock|from quorlock import .*\bClient\b)",
    "js": r"^import .*\bClient\b.* from 'quorlock'|\bClient\b.*require\('quorlock'\)",
    "ts": r"^import .*\bClient\b.* from 'quorlock'",
    "rust": r"^use quorlock::(.*\bClient\b|\*)",
    "sh": "",  # each stands alone
}
"""How a program begins."""

_SNIPPET = re.compile(r'\s*--8<-- "(?P<path>[^"]+)"\s*')
_INSTALLATION = re.compile(r"(pip3?|npm|cargo|uv|apt-get|brew) (install|add) .*")
"""The tests of the packages install them, from nothing."""


class DocumentError(Exception):
    """A page cannot be tested as it is written."""


@dataclass(frozen=True)
class Block:
    """One program, of one block or of several."""

    page: Path
    line: int
    """Of the fence."""
    language: str
    code: str
    """Its lines are where they are on the page, below as many empty ones as are needed."""
    attributes: str = ""
    """What follows the language, such as `no_run`."""
    skipped: str = ""
    """Why it is not run."""
    printed: str = ""
    """What it prints, as a regular expression."""

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


@dataclass
class _Directives:
    """What the comments before a block say."""

    found: dict[str, str] = field(default_factory=dict)

    def read(self, place: str, line: str) -> None:
        if match := _DIRECTIVE.fullmatch(line):
            self.found[match["name"]] = match["value"] or ""
            if match["name"] in ("skip", "prints") and not match["value"]:
                raise DocumentError(f"{place}: `{match['name']}` needs more words")
        elif "<!-- test" in line:
            raise DocumentError(f"{place}: no such directive: {line.strip()}")
        elif line.strip():
            self.found.clear()


def name(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)


def pages() -> list[Path]:
    """The pages whose blocks are tested."""
    return [ROOT / "README.md", *PACKAGES, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The programs on a page, those of several blocks put together."""
    found: dict[str, list[Block]] = {}
    for block, goes_on in _read(page):
        programs = found.setdefault(block.language, [])
        if goes_on and programs:
            programs[-1] = _joined(programs[-1], block)
        else:
            programs.append(block)
    return sorted((each for every in found.values() for each in every), key=lambda each: each.line)


def _joined(first: Block, second: Block) -> Block:
    """One program of both. If one of them can't run, neither can the other."""
    gap = "\n" * (second.line - first.code.count("\n"))
    return replace(
        first,
        code=first.code + gap + second.code[second.line :],
        skipped=first.skipped or second.skipped,
        printed=first.printed + second.printed,
    )


def _read(page: Path) -> Iterator[tuple[Block, bool]]:
    """Each block, and whether it goes on from the one before, if there is one."""
    directives = _Directives()
    lines = iter(enumerate(page.read_text().splitlines(), start=1))
    for number, line in lines:
        place = f"{name(page)}:{number}"
        fence = _FENCE.fullmatch(line)
        if fence is None:
            directives.read(place, line)
            continue
        inside = _inside(place, fence, (line for _, line in lines))
        language, said = fence["language"], dict(directives.found)
        directives.found.clear()
        if language in PROGRAMS:
            block = Block(
                page,
                number,
                language,
                "\n" * number + inside,
                attributes=fence["more"].strip(" ,"),
                skipped=said.get("skip", "") or _skipped(place, language, inside),
                printed=said.get("prints", ""),
            )
            yield block, _goes_on(block, said)
        elif language and language not in NO_PROGRAMS:
            known = ", ".join(PROGRAMS + NO_PROGRAMS)
            raise DocumentError(f"{place}: blocks are marked with one of {known}")


def _inside(place: str, fence: re.Match[str], lines: Iterator[str]) -> str:
    taken: list[str] = []
    for line in lines:
        if line.strip() == fence["ticks"]:
            return "".join(f"{each}\n" for each in taken)
        if not line.startswith(fence["indent"]) and line.strip():
            raise DocumentError(f"{place}: a line of the block is indented less than its fence")
        taken.append(line[len(fence["indent"]) :])
    raise DocumentError(f"{place}: the block has no end")


def _skipped(place: str, language: str, code: str) -> str:
    if snippet := _SNIPPET.fullmatch(code):
        if not (ROOT / snippet["path"]).is_file():
            raise DocumentError(f"{place}: there is no {snippet['path']}")
        return f"{snippet['path']} has tests of its own"
    commands = [line.split("  #")[0].strip() for line in code.splitlines() if line.strip()]
    if language == "sh" and all(_INSTALLATION.fullmatch(each) for each in commands):
        return "installs something"
    if code.lstrip().startswith("--8<--"):
        return "a file, which has tests of its own"
    return ""


def _goes_on(block: Block, said: dict[str, str]) -> bool:
    if "continues" in said or "alone" in said:
        return "continues" in said
    return not re.search(_CLIENT[block.language], block.code, re.MULTILINE)
