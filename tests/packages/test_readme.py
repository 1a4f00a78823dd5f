"""The quick starts of the README, with its own commands, from the built packages to a held lock."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from home import home
from packages.sandboxes import ROOT
from servers import Servers

README = (ROOT / "README.md").read_text()


def block(language: str, after: str) -> str:
    """Returns the first block of a language after a text."""
    match = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert match
    return match[1]


@pytest.mark.parametrize(
    ("name", "language", "program"),
    [("python", "python", "start.py"), ("node", "js", "start.mjs")],
)
def test_the_quick_start_of_the_readme_holds_a_lock(
    name: str,
    language: str,
    program: str,
    packages: Path,
    npm_registry: str,
    start_servers: Callable[..., Servers],
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (tmp_path / "quorlock" / "build").mkdir(parents=True)
    (tmp_path / "quorlock" / "build" / "packages").symlink_to(packages)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "npm_config_registry": npm_registry,
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    install = block("sh", f"<!-- install {name} -->")
    assert "quorlock" in install
    run("bash", "-euc", install)
    [url] = start_servers(1).urls
    code = block(language, f"<!-- install {name} -->")
    (tmp_path / program).write_text(code.replace("redis://127.0.0.1:6379", url))
    printed = run("python" if language == "python" else "node", program)
    assert re.fullmatch(r"held; write with fence \d{16}\n", printed)


def test_the_packages_are_built_from_the_project_s_own_home() -> None:
    if "make -C quorlock packages" in README:
        assert f"git clone {home().repository}\n" in README
