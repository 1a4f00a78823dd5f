"""MkDocs hooks: convert pages that are written for GitHub, and add a script of the theme."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from rewriting import ROOT, links, pipes, tabs

_log = logging.getLogger("mkdocs.hooks.quorlock")


def on_files(files: Files, config: Any) -> Files:
    """Registers a script of the theme."""
    script = ROOT / "site" / "node_modules" / "iframe-worker" / "shim" / "index.js"
    files.append(File.generated(config, "assets/iframe-worker.js", abs_src_path=str(script)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    source = Path(page.file.abs_src_path)
    return links(pipes(tabs(markdown)), source, config.repo_url, _log.warning)
