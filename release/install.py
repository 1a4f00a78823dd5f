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
quorlock is not on PyPI, npm or crates.io yet. Clone the repository, and build the Python
and Node.js packages. The build needs a C compiler, make, and at least Rust 1.88, Python 3.11 and
Node.js 20.19. On two cores, it takes about six minutes:

<!-- test: skip (see tests/packages) -->
```sh
git clone {repository}
make -C quorlock packages
```
""",
    "python": """\
```sh
python3 -m venv venv
. venv/bin/activate
pip install quorlock/build/packages/quorlock-*.whl
```

If you need only Python, skip `make`, and run `pip install ./quorlock` in the venv. This
command takes about six minutes. To see the progress, add `--verbose`.
""",
    "node": "```sh\nnpm install ./quorlock/build/packages/*.tgz\n```\n",
    "rust": """\
```sh
cargo new orders
cd orders
cargo add --path ../quorlock/core
cargo add tokio --features macros,rt-multi-thread
```
""",
}
REGISTRIES = {
    "build": "quorlock needs Python 3.11, Node.js 20.19 or Rust 1.88, or later.\n",
    "python": "```sh\npython3 -m venv venv\n. venv/bin/activate\npip install quorlock\n```\n",
    "node": "```sh\nnpm install quorlock\n```\n",
    "rust": """\
```sh
cargo new orders
cd orders
cargo add quorlock
cargo add tokio --features macros,rt-multi-thread
```
""",
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
