"""Every test is run with each installation of the command."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from command_line import INSTALLATIONS, CommandLine
from servers import Servers


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(3)


@pytest.fixture(params=INSTALLATIONS)
def quorlock(request: pytest.FixtureRequest, servers: Servers) -> CommandLine:
    return CommandLine(request.param, servers.urls)
