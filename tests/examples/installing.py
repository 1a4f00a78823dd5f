"""Installs what the examples run on, apart from .venv and node_modules, under .cache/examples.

As a program it does nothing else: `make examples`. The pins are in examples/python and
examples/node.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop import installing
from interop.installing import NotInstalledError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CACHE = ROOT / ".cache" / "examples"

_VENV = CACHE / "python" / "venv"

PYTHON = replace(
    installing.PYTHON,
    steps=[
        [sys.executable, "-m", "venv", "--clear", _VENV],
        [_VENV / "bin" / "pip", "install", "--no-deps", "--requirement=requirements.txt"],
        [_VENV / "bin" / "pip", "check"],
    ],
    program=[_VENV / "bin" / "python"],
    home=EXAMPLES,
    cache=CACHE,
)

NODE = installing.node(EXAMPLES, CACHE, EXAMPLES)

_LINK = EXAMPLES / "node_modules"


def install_python() -> None:
    """Makes sure that the frameworks for Python are there. Raises NotInstalledError."""
    PYTHON.install()


def install_node() -> None:
    """The same for Node.js, which finds packages beside a program or above it."""
    NODE.install()
    packages = os.path.relpath(CACHE / "node" / "node_modules", EXAMPLES)
    if not _LINK.is_symlink():
        _LINK.symlink_to(packages)


def main() -> None:
    """Installs both, and says why if that is not possible."""
    try:
        install_python()
        install_node()
    except NotInstalledError as error:
        raise SystemExit(f"the examples' frameworks cannot be installed: {error}") from error


if __name__ == "__main__":
    main()
