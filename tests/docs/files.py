"""Keeps the blocks of pages that are copies of files equal to these files.

`python -m docs.files --write`, run in `tests`, updates the blocks that are copies of whole files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

from docs.blocks import Copy, copies, name, pages


def is_current(copy: Copy) -> bool:
    """Whether the block is the file or, if it is a part, a run of its lines. Common indentation
    does not matter in a part."""
    text = copy.file.read_text().rstrip("\n")
    block = copy.code.rstrip("\n")
    if not copy.is_part:
        return block == text
    lines, part = text.splitlines(), dedent(block).splitlines()
    starts = range(len(lines) - len(part) + 1)
    runs = ("\n".join(lines[start : start + len(part)]) for start in starts)
    return bool(part) and any(dedent(run).splitlines() == part for run in runs)


def update(page: Path) -> bool:
    """Replaces the outdated copies of whole files on a page. Returns whether there were any."""
    outdated = [copy for copy in copies(page) if not copy.is_part and not is_current(copy)]
    lines = page.read_text().splitlines()
    for copy in reversed(outdated):
        old = len(copy.code.splitlines())
        new = copy.file.read_text().rstrip("\n").splitlines()
        lines[copy.line : copy.line + old] = [line and copy.indent + line for line in new]
    if outdated:
        page.write_text("\n".join(lines) + "\n")
    return bool(outdated)


def main(arguments: list[str]) -> int:
    if "--write" in arguments:
        for page in pages():
            if update(page):
                print(f"updated {name(page)}")
    outdated = [copy for page in pages() for copy in copies(page) if not is_current(copy)]
    for copy in outdated:
        print(f"{copy} differs from {name(copy.file)}")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
