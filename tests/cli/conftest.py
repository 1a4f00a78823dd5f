"""Fixtures for the tests of the `quorlock` command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from command_line import CommandLine
from servers import Servers


@pytest.fixture(scope="package", autouse=True)
def default_sighup() -> Iterator[None]:
    """Resets SIGHUP: under nohup(1), the processes that tests start would otherwise ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(3)


@pytest.fixture
def quorlock(request: pytest.FixtureRequest, servers: Servers) -> CommandLine:
    """The program that cargo builds. For other installations, see installations.py."""
    return CommandLine(getattr(request, "param", "cargo"), servers.urls)
