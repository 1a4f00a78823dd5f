"""Every link between pages leads to a file and a heading that exist, as GitHub shows them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from docs.blocks import ROOT, name

_HOME = tomllib.loads((ROOT / "release" / "home.toml").read_text())["repository"]

_FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<path>[^)\s#]*)(?:#(?P<anchor>[^)\s]*))?(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.*?) *#*$", re.MULTILINE)
_MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")


def pages() -> list[Path]:
    """Returns all Markdown files of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True)
    return [ROOT / path for path in listed.split("\0") if path and (ROOT / path).is_file()]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the anchors that GitHub makes of the headings of a page."""
    seen: Counter[str] = Counter()
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text()))
    for match in _HEADING.finditer(_FENCED.sub("", page.read_text())):
        title = _MARKUP.sub(lambda part: part[1] or "", match["title"])
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


def broken(page: Path, text: str) -> list[str]:
    """Returns the links in a text that lead nowhere."""
    wrong = []
    for match in _LINK.finditer(_FENCED.sub("", text)):
        path, anchor = match["path"], match["anchor"]
        if path.startswith(f"{_HOME}/blob/main/"):
            path = f"/{path.removeprefix(f'{_HOME}/blob/main/')}"
        if re.match(r"[a-z]+:", path):
            continue
        base = ROOT if path.startswith("/") else page.parent
        target = (base / path.lstrip("/")).resolve() if path else page
        if not target.exists() or (
            anchor is not None and target.suffix == ".md" and anchor not in anchors(target)
        ):
            wrong.append(match[0][1:])
    return wrong


@pytest.mark.parametrize("page", pages(), ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("[a](README.md#quick-start)", False),
        ("[a](https://example.com/missing)", False),
        (f"[a]({_HOME}/blob/main/README.md#quick-start)", False),
        (f"[a]({_HOME}/blob/main/README.md#missing)", True),
        ("```md\n[a](missing.md)\n```", False),
        ("[a](missing.md)", True),
        ("[a](README.md#missing)", True),
        ("[a](#missing)", True),
        ("![a](docs/pictures/missing.svg)", True),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, is_broken: bool) -> None:
    assert bool(broken(ROOT / "README.md", text)) == is_broken
