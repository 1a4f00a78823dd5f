"""Fixtures of all Python tests: real servers, and installations of other libraries.

Also makes the modules in this directory importable.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from interop.installing import Ecosystem, NotInstalledError
from servers import Servers

pytest.register_assert_rewrite("rows")

# The settings of a fleet, which operators may have set on the machine that runs the tests.
for _variable in [name for name in os.environ if name.startswith("QUORLOCK_")]:
    del os.environ[_variable]

# A shell script starts its background jobs with these signals ignored. If pytest is such a job, the
# programs that the tests start would ignore them too, and the tests could not interrupt them.
for _number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="module")
def without_garbage() -> None:
    """Deletes clients of earlier modules that reference cycles keep. Otherwise, in-memory nodes
    cannot move the clock, because the servers of these clients have clocks of their own."""
    gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Returns the number of processes that run tests: more than CPUs, because most tests wait."""
    return max(4, 2 * (os.cpu_count() or 1))


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records whether a test failed, for fixtures that are torn down after it."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(scope="session")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a library that, when preloaded, shifts a program's wall clock."""
    return build_library("skewed.c", tmp_path_factory.mktemp("skewed"))


@pytest.fixture(scope="session")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a library that, when preloaded, changes how some hosts are looked up."""
    return build_library("hanging.c", tmp_path_factory.mktemp("hanging"))


def build_library(source: str, folder: Path) -> str:
    """Compiles a library that can be preloaded, and returns its path."""
    if sys.platform != "linux":
        pytest.skip("needs LD_PRELOAD")
    program, library = Path(__file__).resolve().parent / source, folder / "preloaded.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, program, "-ldl"], check=True)
    return str(library)


@pytest.fixture
def start_servers(request: pytest.FixtureRequest) -> Iterator[Callable[..., Servers]]:
    """`start_servers(n, **options)` returns `Servers` that run until the end of the test.

    The logs are kept if the test failed.
    """
    started: list[Servers] = []

    def start(count: int, **options: Any) -> Servers:
        started.append(Servers(count, **options))
        return started[-1]

    yield start
    for servers in started:
        if request.node.stash.get(_failed, False):
            servers.keep_logs()
        servers.close()


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    """Three independent servers."""
    return start_servers(3)


@pytest.fixture(scope="session")
def install() -> Callable[[Ecosystem], str | None]:
    """`install(ecosystem)` installs the libraries of an ecosystem, once per session.

    It returns the reason if this fails, otherwise None.
    """
    known: dict[str, str | None] = {}

    def install(ecosystem: Ecosystem) -> str | None:
        name = ecosystem.directory
        if name not in known:
            known[name] = None
            try:
                ecosystem.install()
            except NotInstalledError as error:
                known[name] = str(error)
        return known[name]

    return install
