"""MkDocs hooks: convert pages that are written for GitHub, and add the Node.js and Rust references.

typedoc and rustdoc have generated these references before.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from rewriting import ROOT, links, pipes, reference, tabs

RUSTDOC = ROOT / "target" / "doc"
TYPEDOC = ROOT / "build" / "typedoc" / "README.md"

_log = logging.getLogger("mkdocs.hooks.quorlock")


def on_files(files: Files, config: Any) -> Files:
    """Registers the Rust reference, so that pages can link to it, and a script of the theme."""
    for path in sorted(RUSTDOC.glob("quorlock/**/*.html")):
        target = f"api/rust/{path.relative_to(RUSTDOC).as_posix()}"
        files.append(File.generated(config, target, abs_src_path=str(path)))
    script = ROOT / "site" / "node_modules" / "iframe-worker" / "shim" / "index.js"
    files.append(File.generated(config, "assets/iframe-worker.js", abs_src_path=str(script)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if page.file.src_uri == "api/node.md":
        markdown += "\n" + reference(TYPEDOC.read_text())
    source = Path(page.file.abs_src_path)
    return links(pipes(tabs(markdown)), source, config.repo_url, _log.warning)


def on_post_build(config: Any) -> None:
    """Copies the Rust reference with its styles and scripts."""
    shutil.copytree(RUSTDOC, Path(config.site_dir, "api", "rust"), dirs_exist_ok=True)
