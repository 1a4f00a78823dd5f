"""What MkDocs has to be told of this repository, whose pages are to be read on GitHub as well.

- A link that leaves `docs/` becomes one to the repository on the web.
- A group of blocks between `<!-- tabs -->` and `<!-- /tabs -->`, each behind its name in bold,
  becomes tabs.
- The references of the Node.js and the Rust package, which other tools have written, become a part
  of the site.
"""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
RUSTDOC = ROOT / "target" / "doc"
TYPEDOC = ROOT / "build" / "typedoc" / "README.md"

_LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")
_TABS = re.compile(r"^<!-- tabs -->\n(?P<tabs>.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
_TAB = re.compile(
    r"^\*\*(?P<name>[^*\n]+)\*\*\n(?P<body>.*?)(?=^\*\*[^*\n]+\*\*\n|\Z)", re.M | re.S
)
_ANCHORED = re.compile(r'^<a id="(?P<id>[^"]+)"></a>\n+(?P<heading>#+ .*)$', re.MULTILINE)

_log = logging.getLogger("mkdocs.hooks.quorlock")


def on_files(files: Files, config: Any) -> Files:
    """Lets pages link to those of the Rust reference."""
    for path in sorted(RUSTDOC.glob("quorlock/**/*.html")):
        place = f"api/rust/{path.relative_to(RUSTDOC).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_post_build(config: Any) -> None:
    """Copies what the pages of the Rust reference need."""
    shutil.copytree(RUSTDOC, Path(config.site_dir, "api", "rust"), dirs_exist_ok=True)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    source = Path(page.file.abs_src_path)
    if page.file.src_uri == "api/node.md":
        markdown += "\n" + _ANCHORED.sub(r"\g<heading> {: #\g<id> }", TYPEDOC.read_text())
    markdown = _TABS.sub(lambda group: _TAB.sub(_tab, group["tabs"]), markdown)
    return _LINK.sub(lambda link: _link(link, source, config.repo_url), markdown)


def _tab(tab: re.Match[str]) -> str:
    lines = (f"    {line}" if line else "" for line in tab["body"].split("\n"))
    return f'=== "{tab["name"]}"\n' + "\n".join(lines) + "\n"


def _link(link: re.Match[str], source: Path, repository: str) -> str:
    target = (source.parent / link["path"]).resolve()
    if target.is_relative_to(ROOT / "docs"):
        return link[0]
    if not target.is_relative_to(ROOT) or not target.exists():
        _log.warning("%s links to %s, which is not in the repository", source, link["path"])
    kind = "tree" if target.is_dir() else "blob"
    place = target.relative_to(ROOT).as_posix()
    return f"{repository}/{kind}/main/{place}{link['anchor'] or ''}"
