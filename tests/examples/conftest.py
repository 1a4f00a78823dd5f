"""Fixtures of the example tests: nodes, the examples' processes, and the service they call."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from examples.gateway import Gateway
from examples.installing import EXAMPLES, PYTHON, ROOT, install_node, install_python
from examples.programs import Program
from interop.installing import NotInstalledError
from servers import Servers


# Failures are cached too: without a network, an installer takes long to fail.
@functools.cache
def _reason_against(install: Callable[[], None]) -> str | None:
    try:
        install()
    except NotInstalledError as error:
        return str(error)
    return None


def _need(install: Callable[[], None]) -> None:
    if reason := _reason_against(install):
        pytest.skip(f"the frameworks of the example cannot be installed: {reason}")


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.close()


@pytest.fixture
def environment(servers: Servers, gateway: Gateway, tmp_path: Path) -> dict[str, str]:
    """The environment variables that configure the examples."""
    return {
        "QUORLOCK_NODES": ",".join(servers.urls),
        "GATEWAY_URL": gateway.url,
        "DATABASE": str(tmp_path / "database"),
        "PORT": "0",
    }


@pytest.fixture
def queue(start_servers: Callable[..., Servers], environment: dict[str, str]) -> Servers:
    """The server with the jobs: the broker of Celery, or that of BullMQ's queues."""
    server = start_servers(1)
    environment["BROKER_URL"] = server.urls[0] + "/0"
    environment["QUEUE_URL"] = server.urls[0]
    return server


Start = Callable[..., Program]


@pytest.fixture
def start(environment: dict[str, str], servers: Servers) -> Iterator[Start]:
    """`start(command, directory)` starts a program in the directory of an example."""
    started: list[Program] = []

    def start(command: list[str | Path], directory: str, **more: str) -> Program:
        cwd, group = EXAMPLES / directory, servers.process_group
        program = Program(command, cwd, environment | more, group)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()


@pytest.fixture
def frameworks() -> None:
    """Installs the frameworks of the Python examples, or skips the test."""
    _need(install_python)


@pytest.fixture
def start_python(start: Start, frameworks: None) -> Start:
    """`start_python(directory, *arguments)` runs Python with frameworks and the built quorlock."""
    path = str(ROOT / "bindings-python" / "python")

    def start_python(directory: str, *arguments: str, **more: str) -> Program:
        command = [*PYTHON.program, *arguments]
        return start(command, directory, **{"PYTHONPATH": path, **more})

    return start_python


@pytest.fixture
def start_node(start: Start) -> Start:
    """`start_node(directory, *arguments)` runs Node.js with the frameworks."""
    _need(install_node)
    node = shutil.which("node")
    assert node, "node is not on the PATH"

    def start_node(directory: str, *arguments: str, **more: str) -> Program:
        return start([node, *arguments], directory, **more)

    return start_node


@pytest.fixture(scope="session")
def nestjs() -> str:
    """Compiles the NestJS example and checks its types. Returns the path of its main program."""
    _need(install_node)
    tsc = ROOT / "node_modules" / ".bin" / "tsc"
    subprocess.run([tsc, "--project", EXAMPLES / "nestjs"], check=True)
    return "dist/main.js"
