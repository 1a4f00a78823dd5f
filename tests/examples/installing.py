"""Installs the frameworks of the examples under .cache/examples, separate from .venv and
node_modules.

`make examples` runs this file. The pins are in examples/python and examples/node.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop import installing
from interop.installing import NotInstalledError, locked

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
    """Installs the Python frameworks unless they are installed. Raises NotInstalledError."""
    PYTHON.install()


def install_node() -> None:
    """Installs the Node.js frameworks unless they are installed. Raises NotInstalledError.

    Node.js looks for packages in the directories above a program, so this function creates a link
    to the packages in examples/.
    """
    NODE.install()
    packages = os.path.relpath(CACHE / "node" / "node_modules", EXAMPLES)
    with locked(CACHE / "link.lock"):
        if not _LINK.is_symlink():
            _LINK.symlink_to(packages)


def main() -> None:
    """Installs the frameworks of both languages. Exits with the reason if this is not possible."""
    try:
        install_python()
        install_node()
    except NotInstalledError as error:
        raise SystemExit(f"the examples' frameworks cannot be installed: {error}") from error


if __name__ == "__main__":
    main()
