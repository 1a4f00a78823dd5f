"""Writes the commands that install quorlock into the pages that show them.

    python release/install.py source       before the first release: from a clone
    python release/install.py registries   from PyPI, npm and crates.io

A page has each command between `<!-- install NAME -->` and `<!-- /install -->`. `make version` of a
release writes the second form.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from home import home

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "getting-started.md"]

SOURCE = {
    "build": """\
The packages are not on PyPI, npm or crates.io yet. Build them once from a clone. This takes about
three minutes, and needs Rust, Python, Node.js and make:

<!-- test: skip (tests/packages builds the packages) -->
```sh
git clone {repository}
make -C quorlock packages
```
""",
    "python": "```sh\npip install quorlock/build/packages/quorlock-*.whl\n```\n",
    "node": "```sh\nnpm install ./quorlock/build/packages/*.tgz\n```\n",
    "rust": "```sh\ncargo add --path quorlock/core\n```\n",
}
REGISTRIES = {
    "build": "",
    "python": "```sh\npip install quorlock\n```\n",
    "node": "```sh\nnpm install quorlock\n```\n",
    "rust": "```sh\ncargo add quorlock\n```\n",
}

_BLOCK = re.compile(r"<!-- install (?P<name>\w+) -->\n.*?<!-- /install -->", re.DOTALL)


def filled(page: str, commands: dict[str, str]) -> str:
    """Returns the page with these commands."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        text = commands[name].format(repository=home().repository)
        return f"<!-- install {name} -->\n{text}<!-- /install -->"

    return _BLOCK.sub(block, page)


def write(commands: dict[str, str]) -> None:
    """Writes the commands into all pages."""
    for path in PAGES:
        path.write_text(filled(path.read_text(), commands))


if __name__ == "__main__":
    write({"source": SOURCE, "registries": REGISTRIES}[sys.argv[1]])
