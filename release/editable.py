"""Installs the Python package of this checkout for the interpreter that runs this script, without
compiling: an editable install of the package and its commands.

`make build` compiles the native module, together with the Node.js addon, and puts it into the
package.
"""

from __future__ import annotations

import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

COMMAND = """\
#!{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


def main() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = ROOT / pyproject["tool"]["maturin"]["python-source"]
    (Path(sysconfig.get_path("purelib")) / "quorlock.pth").write_text(f"{packages}\n")
    for name, target in pyproject["project"]["scripts"].items():
        module, _, function = target.partition(":")
        command = Path(sysconfig.get_path("scripts")) / name
        command.write_text(COMMAND.format(python=sys.executable, module=module, function=function))
        command.chmod(0o755)


if __name__ == "__main__":
    main()
