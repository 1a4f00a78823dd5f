"""The packages built for this machine, and the sandboxes in which they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.installing import locked
from packages.registry import registry
from packages.sandboxes import ROOT, Sandbox, new_project, sandbox
from packages.tools import project

sys.path.insert(0, str(ROOT / "release"))

import npm
from packages import archives

PROFILE = os.environ.get("PACKAGES_PROFILE", "quick")
"""The cargo profile with which the packages are compiled: `release` in `make packages`."""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the packages once for all tests, unless the environment variable PACKAGES names their
    directory. Returns their directory."""
    if directory := os.environ.get("PACKAGES"):
        return Path(directory).resolve()
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    out = shared / "packages"
    done = shared / "packages.done"
    with locked(shared / "packages.lock"):
        if not done.exists():
            command = [sys.executable, str(ROOT / "release" / "build.py"), str(out), PROFILE]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stderr
            print(built.stdout)
            done.touch()
    return out


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the command for Linux x64."""
    return archives.build(tmp_path_factory.mktemp("archives"))


@pytest.fixture(scope="session")
def python(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A sandbox with a virtual environment in which the wheel is installed."""
    directory = tmp_path_factory.mktemp("python") / "clean"
    interpreter = str(directory / "venv" / "bin" / "python")
    found = sandbox(directory, base=sys.executable)
    found.succeed("base", "-m", "venv", directory / "venv")
    found.programs["python"] = interpreter
    [wheel] = packages.glob("*.whl")
    found.succeed(interpreter, "-m", "pip", "install", "--quiet", "--no-index", wheel)
    return found


@pytest.fixture(scope="session")
def npm_registry(packages: Path) -> Iterator[str]:
    """The URL of a registry of all packages. Native addons for other platforms have no tarball."""
    manifests = [npm.main_manifest(), *map(npm.platform_manifest, npm.platforms())]
    with registry(manifests, packages) as url:
        yield url


@pytest.fixture(scope="session")
def node(npm_registry: str, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A sandbox with a project in which the npm package is installed."""
    return new_project(tmp_path_factory.mktemp("node") / "project", npm_registry)


@pytest.fixture(scope="session")
def quick_tools(npm_registry: str) -> Iterator[Sandbox]:
    """A project below the tools of `make test`, in which the npm package is installed."""
    with project("quick", npm_registry) as found:
        yield found


@pytest.fixture(scope="session")
def full_tools(npm_registry: str) -> Iterator[Sandbox]:
    """A project below the tools of `make verify`, in which the npm package is installed."""
    with project("full", npm_registry) as found:
        yield found
