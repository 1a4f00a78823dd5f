"""Contents and installation of the wheel and the sdist."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from docs.blocks import SKILL
from packages.conftest import PROFILE
from packages.mistakes import MISTAKES, check, with_server
from packages.sandboxes import ROOT, Sandbox, quick_start
from packages.tools import write
from servers import Servers

SMOKE = ROOT / "release" / "smoke.py"
ECHO = "import os; print(os.environ['QUORLOCK_FENCE'])"
MODULES = ROOT / "bindings-python" / "python" / "quorlock"


def test_the_wheel_has_only_the_needed_files(packages: Path) -> None:
    [wheel] = packages.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    package = {name for name in names if name.startswith("quorlock/")}
    sources = {
        f"quorlock/{path.relative_to(MODULES).as_posix()}"
        for path in MODULES.rglob("*")
        if path.suffix in {".py", ".pyi", ".typed"}
    }
    skill = f"quorlock/{SKILL.relative_to(MODULES).as_posix()}"
    assert package == sources | {"quorlock/_quorlock.abi3.so", "quorlock/py.typed", skill}
    plugin = {name for name in names if name.startswith("_quorlock_pytest/")}
    assert plugin == {"_quorlock_pytest/__init__.py", "_quorlock_pytest/py.typed"}
    rest = {name.partition(".dist-info/")[2] for name in names} - {""}
    assert rest - {"entry_points.txt"} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "licenses/LICENSE",
        "licenses/LICENSE-THIRD-PARTY",
        "sboms/quorlock-python.cyclonedx.json",
    }
    assert re.fullmatch(r"quorlock-[\w.]+-cp311-abi3-\w+\.whl", wheel.name)


def test_the_quick_start_runs(python: Sandbox, start_servers: Callable[..., Servers]) -> None:
    [url] = start_servers(1).urls
    output = python.succeed("python", "-", stdin=quick_start("python", url))
    assert re.fullmatch(r"held; write with fence \d{16}\n", output)


def test_the_command_line_is_installed(
    python: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    [url] = start_servers(1).urls
    quorlock = Path(python.programs["python"]).with_name("quorlock")
    echo = [sys.executable, "-c", ECHO]
    output = python.succeed(quorlock, "run", "--node", url, "r", "--", *echo)
    assert re.fullmatch(r"\d{16}\n", output)


def test_the_types_pass_in_pyright(python: Sandbox, quick_tools: Sandbox) -> None:
    name = "typed.py"
    options = {
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        # Has redis-py, which the sandbox lacks.
        "extraPaths": [sysconfig.get_path("purelib")],
        "include": [name],
    }
    write(
        quick_tools,
        {
            f"pyright/{name}": Path(__file__).with_name(name).read_text(),
            "pyright/pyrightconfig.json": json.dumps(options),
        },
    )
    pyright = "../node_modules/pyright/index.js"
    interpreter = python.programs["python"]
    quick_tools.succeed("node", pyright, "--project", "pyright", "--pythonpath", interpreter)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_common_mistake_gets_a_helpful_error(
    name: str, python: Sandbox, start_servers: Callable[..., Servers]
) -> None:
    client = with_server(MISTAKES[name].python, start_servers)
    program = f"from quorlock import Client\n{client}.lock('r').acquire()"
    done = python.run("python", "-", stdin=program)
    assert done.returncode == 1
    check(done.stderr.splitlines()[-1], MISTAKES[name])


def test_the_sdist_has_only_the_needed_files(packages: Path) -> None:
    [sdist] = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        names = [name.partition("/")[2] for name in opened.getnames()]
    top = {"Cargo.lock", "Cargo.toml", "LICENSE", "LICENSE-THIRD-PARTY", "PKG-INFO"}
    crates = ("bindings-python/", "core/", "cli/")
    rest = {name for name in names if not name.startswith(crates)}
    assert rest == top | {"pyproject.toml"}
    assert SKILL.relative_to(ROOT).as_posix() in names
    for name in names:
        assert Path(name).suffix not in {".so", ".pyd", ".pyc", ".json"}, name
        assert "tests" not in Path(name).parts, name


def test_the_sdist_can_be_installed(packages: Path, python: Sandbox, tmp_path: Path) -> None:
    """Uses Rust and maturin, as on a platform without a wheel. Reuses the target directory."""
    [sdist] = packages.glob("*.tar.gz")
    target = tmp_path / "site"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    settings = f"--config-settings=build-args=--profile={PROFILE}"
    done = subprocess.run(
        [*command, "--no-build-isolation", settings, "--target", target, sdist],
        env={**os.environ, "PATH": path, "CARGO_TARGET_DIR": str(ROOT / "target")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = f"import sys; sys.path.insert(0, {str(target)!r})\n"
    python.succeed("base", "-I", "-", stdin=found + SMOKE.read_text())
