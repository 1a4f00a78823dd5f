"""Installs the packages with each package manager in an empty directory, and uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest
from interop.installing import locked
from packages.sandboxes import CRATES, ROOT, Sandbox, cargo_environment, program, sandbox
from packages.tools import CACHE, full, write
from version import version

RELEASE = ROOT / "release"
SMOKE = (RELEASE / "smoke.py").read_text()
LOCKING = ["bench", "--node", "memory://a", "--duration", "1s"]
"""Arguments with which the command locks without a server."""


class Manager(NamedTuple):
    """A package manager of Node.js."""

    program: str
    """Its path, or a pattern of its path below node_modules of the tools."""
    add: list[str]
    """The command that installs a package."""
    run: list[str]
    """The command that runs a module."""


NODE = {
    "npm": Manager(program("npm"), ["npm", "install", "--no-audit", "--no-fund"], ["node"]),
    "pnpm": Manager("pnpm/bin/pnpm.mjs", ["pnpm", "add"], ["node"]),
    "yarn": Manager("yarn/bin/yarn.js", ["yarn", "add", "--no-progress"], ["node"]),
    # Without node_modules: Plug'n'Play.
    "yarn-berry": Manager(
        "@yarnpkg/cli-dist/bin/yarn.js", ["yarn-berry", "add"], ["yarn-berry", "node"]
    ),
    "bun": Manager("@oven/bun-*/bin/bun", ["bun", "add"], ["bun"]),
}


def found(pattern: str, modules: Path) -> str:
    """Returns the path of a manager's program."""
    if Path(pattern).is_absolute():
        return pattern
    path = next(modules.glob(pattern), None)
    assert path, f"{modules} has no {pattern}"
    path.chmod(0o755)
    return str(path)


@full
@pytest.mark.parametrize("name", NODE)
def test_the_npm_package_locks_after_an_installation(
    name: str, full_tools: Sandbox, npm_registry: str, tmp_path: Path
) -> None:
    modules = full_tools.directory.parent / "node_modules"
    manager = NODE[name]
    programs = {"node": program("node"), "sh": program("sh"), name: found(manager.program, modules)}
    project = sandbox(tmp_path / "project", **programs)
    write(
        project,
        {
            "package.json": '{"name": "project", "private": true, "type": "module"}',
            ".npmrc": f"registry={npm_registry}\n",
            "smoke.mjs": (RELEASE / "smoke.mjs").read_text(),
        },
    )
    environment = {
        "YARN_NPM_REGISTRY_SERVER": npm_registry,
        "YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
        "YARN_ENABLE_TELEMETRY": "0",
        "YARN_CACHE_FOLDER": str(tmp_path / "cache"),
    }
    project.succeed(*manager.add, "quorlock", **environment)
    project.succeed(*manager.run, "smoke.mjs", **environment)


def test_the_wheel_locks_after_an_installation_with_pip(python: Sandbox) -> None:
    python.succeed("python", "-I", "-", stdin=SMOKE)


@pytest.fixture(scope="module")
def python_tools() -> Path:
    """The directory of uv and pipx."""
    directory = CACHE / "python"
    wanted = RELEASE / "check-requirements.txt"
    stamp = directory / "stamp"
    with locked(CACHE / "python.lock"):
        if not stamp.exists() or stamp.read_text() != wanted.read_text():
            subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
            pip = [str(directory / "bin" / "pip"), "install", "--quiet", "--requirement"]
            subprocess.run([*pip, str(wanted)], check=True)
            stamp.write_text(wanted.read_text())
    return directory / "bin"


@full
def test_the_wheel_locks_after_an_installation_with_uv(
    packages: Path, python_tools: Path, tmp_path: Path
) -> None:
    [wheel] = packages.glob("*.whl")
    project = sandbox(tmp_path / "project", uv=str(python_tools / "uv"))
    project.succeed("uv", "venv", "--offline", "--python", sys.executable)
    project.succeed("uv", "pip", "install", "--offline", wheel)
    python = project.directory / ".venv" / "bin" / "python"
    project.succeed(python, "-I", "-", stdin=SMOKE)


@full
def test_the_command_locks_after_an_installation_with_pipx(
    packages: Path, python_tools: Path, tmp_path: Path
) -> None:
    [wheel] = packages.glob("*.whl")
    project = sandbox(tmp_path / "project", pipx=str(python_tools / "pipx"))
    paths = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "programs")}
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    project.succeed("pipx", "install", "--python", sys.executable, wheel, **paths, **settings)
    project.succeed(tmp_path / "programs" / "quorlock", *LOCKING)


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The crates as they are published, unpacked."""
    directory = tmp_path_factory.mktemp("crates")
    packages = [option for crate in CRATES for option in ("--package", crate)]
    target = ["--target-dir", str(directory / "target")]
    command = ["cargo", "package", "--locked", "--no-verify", "--allow-dirty", *packages, *target]
    subprocess.run(command, cwd=ROOT, check=True)
    found = {}
    for crate in CRATES:
        [packed] = (directory / "target" / "package").glob(f"{crate}-[0-9]*.crate")
        with tarfile.open(packed) as opened:
            opened.extractall(directory, filter="data")
        found[crate] = directory / packed.stem
    return found


def cargo(crates: dict[str, Path], *command: str | Path, cwd: Path) -> None:
    """Runs cargo. The published crates are used as if they came from the registry."""
    patches = [
        option
        for crate, path in crates.items()
        if crate != "quorlock-cli"
        for option in ("--config", f'patch.crates-io.{crate}.path="{path}"')
    ]
    done = subprocess.run(
        ["cargo", *patches, *command],
        cwd=cwd,
        env=cargo_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@full
def test_the_crate_locks_in_a_program(crates: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    shutil.copy(RELEASE / "smoke.rs", tmp_path / "src" / "main.rs")
    shutil.copy(ROOT / "Cargo.lock", tmp_path)
    package = '[package]\nname = "smoke"\nedition = "2024"\n'
    (tmp_path / "Cargo.toml").write_text(f'{package}[dependencies]\nquorlock = "{version()}"\n')
    cargo(crates, "run", "--quiet", cwd=tmp_path)


@full
def test_the_command_locks_after_an_installation_with_cargo(
    crates: dict[str, Path], tmp_path: Path
) -> None:
    install = ["install", "--quiet", "--debug", "--locked", "--root", str(tmp_path), "--path"]
    cargo(crates, *install, crates["quorlock-cli"], cwd=tmp_path)
    subprocess.run([tmp_path / "bin" / "quorlock", *LOCKING], check=True)
