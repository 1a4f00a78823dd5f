"""MkDocs hook: writes `llms.txt` and `llms-full.txt` for programs that read the documentation.

`llms.txt` (https://llmstxt.org) is an index with one line for each page, in the order of the
navigation. `llms-full.txt` contains the text of all pages. Both are made of the Markdown files, as
GitHub shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rewriting import links

_COMMENT = re.compile(r"^ *<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r"^(?![#<!|>\-])\S.*(?:\n(?![#<|>\-])\S.*)*", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_SENTENCE = re.compile(r".*?\.(?=\s|$)")


class Entry(NamedTuple):
    """A page of the site, and its section in the navigation."""

    section: str
    title: str
    url: str
    file: Path


def entries(items: Any, section: str = "") -> Iterator[Entry]:
    """Yields the pages of the navigation."""
    for item in items:
        if item.is_page:
            yield Entry(section, item.title, item.url, Path(item.file.abs_src_path))
        elif item.is_section:
            yield from entries(item.children, item.title)


def summary(markdown: str) -> str:
    """Returns the first sentence of a page, on one line and without links."""
    paragraph = _TEXT.search(_CODE.sub("", _COMMENT.sub("", markdown)))
    if paragraph is None:
        return ""
    text = " ".join(_LINK.sub(r"\1", paragraph[0]).split())
    sentence = _SENTENCE.match(text)
    return (sentence[0] if sentence else text).rstrip(":")


def index(name: str, description: str, site: str, pages: list[Entry]) -> str:
    """Returns `llms.txt`."""
    lines = [f"# {name}", "", f"> {description}"]
    section = None
    for page in pages:
        if page.section != section:
            section = page.section
            lines += ["", f"## {section or 'Overview'}", ""]
        lines.append(f"- [{page.title}]({site}{page.url}): {summary(page.file.read_text())}")
    return "\n".join(lines) + "\n"


def full(repository: str, site: str, pages: list[Entry]) -> str:
    """Returns `llms-full.txt`."""
    texts = []
    for page in pages:
        text = links(page.file.read_text(), page.file, repository, lambda warning: None)
        texts.append(f"Source: {site}{page.url}\n\n{_COMMENT.sub('', text).strip()}\n")
    return "\n---\n\n".join(texts)


_pages: list[Entry] = []


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """Keeps the navigation: its pages have titles now."""
    _pages[:] = entries(nav.items)
    return context


def on_post_build(config: Any) -> None:
    site, out = config.site_url or "", Path(config.site_dir)
    (out / "llms.txt").write_text(index(config.site_name, config.site_description, site, _pages))
    (out / "llms-full.txt").write_text(full(config.repo_url, site, _pages))
