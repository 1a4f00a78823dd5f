"""The nodes on which the programs of the documentation run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Five nodes that report an uptime of a day, so that no restart guard ignores their votes.

    The user `app` with the password `secret` has all rights.
    """
    library = tmp_path_factory.mktemp("uptime") / "uptime.so"
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    source = Path(__file__).with_name("uptime.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    with Servers(5, environment={"LD_PRELOAD": str(library)}) as started:
        for server in started:
            server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
        yield started
