"""Texts as they are read on GitHub, or as typedoc writes them, made into what the site shows."""

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
_SECTION = re.compile(
    r'(?:<a id="(?P<id>[^"]+)"></a>\n+)?^(?P<level>#{2,6}) (?P<title>[^\n]*)\n(?P<body>.*?)'
    r'(?=^(?:<a id="[^"]+"></a>\n+#|#{2,6} )|\Z)',
    re.MULTILINE | re.DOTALL,
)
_REDUNDANT = {"Returns", "Implements", "Implementation of", "Inherited from", "Type Parameters"}
_GROUPS = {"Constructors", "Methods"}


def tabs(markdown: str) -> str:
    """A group of blocks between `<!-- tabs -->` and `<!-- /tabs -->`, each behind its name in bold,
    becomes tabs."""
    return _TABS.sub(lambda group: _TAB.sub(_tab, group["tabs"]), markdown)


def _tab(tab: re.Match[str]) -> str:
    lines = (f"    {line}" if line else "" for line in tab["body"].split("\n"))
    return f'=== "{tab["name"]}"\n' + "\n".join(lines) + "\n"


def links(markdown: str, source: Path, repository: str, warn: Callable[[str], None]) -> str:
    """A link that leaves `docs/` becomes one to the repository on the web."""

    def rewritten(link: re.Match[str]) -> str:
        target = (source.parent / link["path"]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.is_relative_to(ROOT) or not target.exists():
            warn(f"{source} links to {link['path']}, which is not in the repository")
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        place = target.relative_to(ROOT).as_posix()
        return f"{repository}/{kind}/main/{place}{link['anchor'] or ''}"

    return _LINK.sub(rewritten, markdown)


def reference(written: str) -> str:
    """typedoc's page without what its signatures say already, and with what its links lead to."""
    parts: list[str] = []
    is_error, is_constructor = False, False
    for section in _SECTION.finditer(written):
        level, title = len(section["level"]), section["title"]
        if level == 2:
            is_error = False
        if level <= 3:
            is_constructor = title == "Constructors"
        is_error = is_error or title == "Extends"
        if title in _REDUNDANT | _GROUPS or (is_error and is_constructor):
            continue
        # Members stand right below their class, as the headings of groups are left out.
        shown = level if level < 4 else level - 1
        anchor = f" {{: #{section['id']} }}" if section["id"] else ""
        body = section["body"].replace("***\n", "").replace("\\<", "&lt;")
        parts.append(f"{'#' * shown} {title}{anchor}\n{body}")
    return "\n".join(parts)
