"""What MkDocs has to be told of this repository, whose pages are to be read on GitHub as well.

The references of the Node.js and the Rust package, which other tools have written, become a part of
the site.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from rewriting import ROOT, links, reference, tabs

RUSTDOC = ROOT / "target" / "doc"
TYPEDOC = ROOT / "build" / "typedoc" / "README.md"

_log = logging.getLogger("mkdocs.hooks.quorlock")


def on_files(files: Files, config: Any) -> Files:
    """Lets pages link to those of the Rust reference, and adds the one script that is missing."""
    for path in sorted(RUSTDOC.glob("quorlock/**/*.html")):
        place = f"api/rust/{path.relative_to(RUSTDOC).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(path)))
    script = ROOT / "site" / "node_modules" / "iframe-worker" / "shim" / "index.js"
    files.append(File.generated(config, "assets/iframe-worker.js", abs_src_path=str(script)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if page.file.src_uri == "api/node.md":
        markdown += "\n" + reference(TYPEDOC.read_text())
    source = Path(page.file.abs_src_path)
    return links(tabs(markdown), source, config.repo_url, _log.warning)


def on_post_build(config: Any) -> None:
    """Copies what the pages of the Rust reference need."""
    shutil.copytree(RUSTDOC, Path(config.site_dir, "api", "rust"), dirs_exist_ok=True)
