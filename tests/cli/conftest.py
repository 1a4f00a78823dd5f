"""Every test is run with each installation of the command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from command_line import INSTALLATIONS, CommandLine
from servers import Servers


@pytest.fixture(scope="package", autouse=True)
def hang_up() -> Iterator[None]:
    """What is started gets SIGHUP, also if the tests themselves are run under nohup(1)."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(3)


@pytest.fixture(params=INSTALLATIONS)
def quorlock(request: pytest.FixtureRequest, servers: Servers) -> CommandLine:
    return CommandLine(request.param, servers.urls)
