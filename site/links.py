"""Checks the links of the built site to pages, headings and pictures.

`site/links.py` checks links within the site; `site/links.py all` also checks links to other sites.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
OURS = "https://github.com/quorlock/quorlock"
"""Links to files of this repository are checked when the site is built, not here."""


class Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def main(everything: bool) -> int:
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    # 404.html is shown at any address, so it has no relative links.
    ours = {path: page for path, page in pages.items() if path.name != "404.html"}
    broken, others = [], set()
    for path, page in ours.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                others.add(urldefrag(link).url)
            elif not parts.scheme and not _exists(path, link, pages):
                broken.append(f"{path.relative_to(SITE)}: {link}")
    if everything:
        broken += [f"{link}: {error}" for link in sorted(others) if (error := _error(link))]
    print("\n".join(broken) or f"{len(ours)} pages: no broken links")
    return 1 if broken else 0


def _exists(page: Path, link: str, pages: dict[Path, Page]) -> bool:
    url, anchor = urldefrag(link)
    target = (page.parent / unquote(urlsplit(url).path)).resolve() if url else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not anchor or target not in pages or unquote(anchor) in pages[target].anchors


def _error(link: str) -> str:
    """Returns why a page of another site cannot be read; an empty string if it can."""
    if link.startswith(OURS):
        return ""
    try:
        with urlopen(Request(link, headers={"User-Agent": "Mozilla/5.0"}), timeout=20):
            return ""
    except HTTPError as error:
        # Some sites refuse programs other than browsers, although the page exists.
        return "" if error.code in (401, 403, 405, 429) else str(error)
    except (URLError, OSError) as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(everything="all" in sys.argv[1:]))
