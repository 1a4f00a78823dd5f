"""Installs tools of users' projects (test runners, bundlers, compilers) under .cache/tools.

`make test` uses the set `quick`. `make verify` also uses the set `full`, with larger tools.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from interop.installing import NODE, NotInstalledError
from packages.sandboxes import ROOT, Sandbox, new_project

HERE = Path(__file__).resolve().parent / "tools"
CACHE = ROOT / ".cache" / "tools"

full = pytest.mark.skipif(os.environ.get("TOOLS") != "full", reason="runs in `make verify`")
"""Marks a test that uses the set `full`, or that takes long."""


@contextmanager
def project(tools: str, npm_registry: str) -> Iterator[Sandbox]:
    """Creates a project with the npm package, below the directory with a set of tools.

    The tools are in ../node_modules, where the project's programs also find them. Skips the test if
    they cannot be installed.
    """
    ecosystem = replace(
        NODE,
        directory=tools,
        # Not `npm ci`: it fails if the lock file lacks an optional package of another platform.
        steps=[["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]],
        program=[],
        environment={"npm_config_fetch_retries": "1", "npm_config_loglevel": "error"},
        home=HERE,
        cache=CACHE,
    )
    try:
        ecosystem.install()
    except NotInstalledError as error:
        pytest.skip(str(error))
    with TemporaryDirectory(prefix="project-", dir=CACHE / tools) as directory:
        yield new_project(Path(directory), npm_registry)


def write(sandbox: Sandbox, files: dict[str, str]) -> None:
    """Writes files of a project."""
    for name, text in files.items():
        path = sandbox.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
