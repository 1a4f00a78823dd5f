"""Converts pages that are written for GitHub to those of the site."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")
_TABS = re.compile(r"^<!-- tabs -->\n(?P<tabs>.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
_TAB = re.compile(
    r"^\*\*(?P<name>[^*\n]+)\*\*\n(?P<body>.*?)(?=^\*\*[^*\n]+\*\*\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
_ROW = re.compile(r"^ *\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


def tabs(markdown: str) -> str:
    """Converts blocks between `<!-- tabs -->` and `<!-- /tabs -->` to tabs. Each block follows its
    name in bold."""
    return _TABS.sub(lambda group: _TAB.sub(_tab, group["tabs"]), markdown)


def _tab(tab: re.Match[str]) -> str:
    lines = (f"    {line}" if line else "" for line in tab["body"].split("\n"))
    return f'=== "{tab["name"]}"\n' + "\n".join(lines) + "\n"


def pipes(markdown: str) -> str:
    """Removes the escape of `|` in code in tables, which GitHub needs and MkDocs would show."""

    def unescaped(code: re.Match[str]) -> str:
        return code[0].replace(r"\|", "|")

    return _ROW.sub(lambda row: _CODE.sub(unescaped, row[0]), markdown)


def links(markdown: str, source: Path, repository: str, warn: Callable[[str], None]) -> str:
    """Converts links to files outside `docs/` to links to the repository on the web."""

    def rewritten(link: re.Match[str]) -> str:
        target = (source.parent / link["path"]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.is_relative_to(ROOT) or not target.exists():
            warn(f"{source} links to {link['path']}, which is not in the repository")
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        path = target.relative_to(ROOT).as_posix()
        return f"{repository}/{kind}/main/{path}{link['anchor'] or ''}"

    return _LINK.sub(rewritten, markdown)
