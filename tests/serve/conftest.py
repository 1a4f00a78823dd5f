"""Fixtures for the tests of `quorlock serve` with the Redis libraries of other languages."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from command_line import CommandLine
from daemons import Daemon
from interop.installing import NotInstalledError
from serve.clients import LIBRARIES, TOOLS, Client, Library
from servers import Servers

Connect = Callable[..., Client]


# Failures are cached too: without a network, an installer takes long to fail.
@functools.cache
def _reason_against(name: str) -> str | None:
    (library,) = (library for library in TOOLS if library.name == name)
    if library.missing:
        return f"{library.missing} is missing"
    try:
        library.install()
    except NotInstalledError as error:
        return str(error)
    return None


def need(library: Library) -> Library:
    """Installs the library. Skips the test if that is not possible on this machine."""
    if reason := _reason_against(library.name):
        reason = f"{library} cannot be installed: {reason}"
        # `make verify` sets it.
        assert os.environ.get("CLIENTS") != "all", reason
        pytest.skip(reason)
    return library


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers(3) as servers:
        yield servers


@pytest.fixture(scope="module")
def daemon(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("serve") / "quorlock.sock"
    with Daemon(CommandLine("cargo", servers.urls), path) as daemon:
        yield daemon
        ended = daemon.terminate()
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture(params=LIBRARIES, ids=str)
def library(request: pytest.FixtureRequest) -> Library:
    return need(request.param)


@pytest.fixture
def connect(daemon: Daemon, library: Library) -> Iterator[Connect]:
    """`connect(library)` starts a client, by default of the library that is tested."""
    with ExitStack() as stack:
        yield lambda other=library: stack.enter_context(Client(other, daemon.path))


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def resource(request: pytest.FixtureRequest) -> str:
    """A resource that no other test uses."""
    name: str = request.node.name
    return name
