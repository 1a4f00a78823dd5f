"""The quick starts of the README, with its own commands, from the built packages to a held lock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from home import home
from interop.installing import locked
from packages.sandboxes import ROOT, cargo_environment
from servers import Servers

README = (ROOT / "README.md").read_text()


def block(language: str, after: str) -> str:
    """Returns the first block of a language after a text."""
    match = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert match
    return match[1]


def run(*command: str, cwd: Path, env: Mapping[str, str]) -> str:
    """Runs a program that must succeed, and returns what it prints."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
    (tmp_path / "quorlock" / "build").mkdir(parents=True)
    (tmp_path / "quorlock" / "build" / "packages").symlink_to(packages)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(
            [f"{tmp_path}/venv/bin", str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "npm_config_registry": npm_registry,
    }

    install = block("sh", f"<!-- install {name} -->")
    assert "quorlock" in install
    run("bash", "-euc", install, cwd=tmp_path, env=environment)
    [url] = start_servers(1).urls
    code = block(language, f"<!-- install {name} -->")
    (tmp_path / program).write_text(code.replace("redis://127.0.0.1:6379", url))
    command = "python" if language == "python" else "node"
    printed = run(command, program, cwd=tmp_path, env=environment)
    assert re.fullmatch(r"held; write with fence \d{16}\n", printed)


@pytest.fixture
def empty() -> Iterator[Path]:
    """An empty directory outside the workspace. It has the same path in each run, so that cargo
    compiles only what has changed."""
    checkout = f"{zlib.crc32(str(ROOT).encode()):08x}"
    directory = Path(tempfile.gettempdir()) / f"quorlock-readme-{checkout}"
    with locked(directory.with_suffix(".lock")):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        yield directory
        shutil.rmtree(directory)


def test_the_rust_quick_start_of_the_readme_holds_a_lock(
    start_servers: Callable[..., Servers], empty: Path
) -> None:
    install = block("sh", "<!-- install rust -->")
    if "--path" not in install:
        pytest.skip("the crate of this commit is not published yet")
    (empty / "quorlock").symlink_to(ROOT)
    environment = cargo_environment()
    run("bash", "-euc", install, cwd=empty, env=environment)

    # The same versions of dependencies as in the workspace, which are downloaded already.
    project = empty / "orders"
    shutil.copy(ROOT / "Cargo.lock", project)
    environment["CARGO_NET_OFFLINE"] = "true"
    [url] = start_servers(1).urls
    program = block("rust", "<!-- install rust -->")
    assert program.startswith("// src/main.rs\n")
    (project / "src" / "main.rs").write_text(program.replace("redis://127.0.0.1:6379", url))
    command = block("sh", "// src/main.rs")
    printed = run("bash", "-euc", command, cwd=project, env=environment)
    assert re.fullmatch(r"held; write with fence \d{16}\n", printed)


def test_the_packages_are_built_from_the_project_s_own_home() -> None:
    if "make -C quorlock packages" in README:
        assert f"git clone {home().repository}\n" in README
