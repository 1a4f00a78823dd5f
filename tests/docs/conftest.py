"""The nodes that the documentation's programs run on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Five nodes. A user `app` with the password `secret` may do everything there."""
    library = tmp_path_factory.mktemp("elder") / "elder.so"
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    source = Path(__file__).with_name("elder.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    with Servers(5, environment={"LD_PRELOAD": str(library)}) as started:
        for server in started:
            server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
        yield started
