"""The pytest plugin of quorlock: the fixture `quorlock_nodes`.

A package of its own, so that pytest, which imports all plugins when it starts, does not import
quorlock until a test uses the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from quorlock.testing import Nodes


@pytest.fixture
def quorlock_nodes() -> "Iterator[Nodes]":
    """Three in-memory nodes (`quorlock.testing.Nodes`) that this test can make fail."""
    from quorlock.testing import Nodes

    with Nodes(3) as nodes:
        yield nodes
