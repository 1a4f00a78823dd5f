"""The reference of the Node.js package, as typedoc wrote it, without what its signatures say already."""

from __future__ import annotations

import re
from pathlib import Path

WRITTEN = Path(__file__).resolve().parent.parent / "build" / "typedoc" / "README.md"

_ANCHOR = r'<a id="(?P<id>[^"]+)"></a>\n+'
_SECTION = re.compile(
    rf"(?:{_ANCHOR})?^(?P<level>#{{2,6}}) (?P<title>.*)\n(?P<body>.*?)"
    r'(?=^(?:<a id="[^"]+"></a>\n+#|#{2,6} )|\Z)',
    re.MULTILINE | re.DOTALL,
)
_REDUNDANT = {"Returns", "Implements", "Implementation of", "Inherited from", "Type Parameters"}
_GROUPS = {"Constructors", "Methods", "Classes", "Interfaces", "Type Aliases"}


def reference() -> str:
    """The page, with the anchors that its links lead to."""
    parts: list[str] = []
    is_error, is_constructor = False, False
    for section in _SECTION.finditer(WRITTEN.read_text()):
        level, title = len(section["level"]), section["title"]
        if level == 2:
            is_error = False
        if level <= 3:
            is_constructor = title == "Constructors"
        is_error = is_error or title == "Extends"
        if title in _REDUNDANT | _GROUPS or (is_error and is_constructor):
            continue
        anchor = f" {{: #{section['id']} }}" if section["id"] else ""
        # Members stand right below their class, as its groups are left out.
        shown = level if level < 4 else level - 1
        parts.append(f"{'#' * shown} {title}{anchor}\n{section['body'].replace('***', '')}")
    return "\n".join(parts)
