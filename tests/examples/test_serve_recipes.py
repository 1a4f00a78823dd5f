"""examples/serve: workers in nine languages that lock through `quorlock serve`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from command_line import CommandLine
from daemons import Daemon
from examples.conftest import Start
from examples.installing import CACHE, EXAMPLES
from examples.programs import Program
from interop.installing import Ecosystem
from nodes import keys, steal
from serve import clients
from serve.conftest import need
from servers import Servers
from waiting import wait_until

RECIPES = EXAMPLES / "serve"


def _built(ecosystem: Ecosystem, inputs: list[str], program: list[str | Path]) -> Ecosystem:
    """Returns an ecosystem that builds a recipe, with the steps of the tests in tests/serve."""
    cache = CACHE / "serve"
    return replace(ecosystem, inputs=inputs, program=program, home=RECIPES, cache=cache)


GO = replace(
    _built(clients.GO, ["go.mod", "go.sum", "worker.go"], [CACHE / "serve" / "go" / "worker"]),
    steps=[["go", "build", "-o", "worker", "."]],
)
_TARGET = CACHE / "serve" / "java" / "target"
JAVA = _built(
    clients.JAVA,
    ["pom.xml", "src/main/java/Worker.java"],
    ["java", "-cp", f"{_TARGET / 'classes'}:{_TARGET / 'dependency'}/*", "Worker"],
)
_HIREDIS = clients.CACHE / "c"
C = replace(
    _built(clients.C, ["worker.c"], [CACHE / "serve" / "c" / "worker"]),
    steps=[
        [
            *("sh", "-ec"),
            f"cc -o worker -I {_HIREDIS}/hiredis-*/vendor worker.c"
            f" $(ls {_HIREDIS}/hiredis-*/vendor/hiredis/*.c | grep -v -e test -e ssl)",
        ]
    ],
)

CSHARP = replace(
    _built(
        clients.MONO,
        ["worker.cs"],
        [*clients.MONO.program, CACHE / "serve" / "csharp" / "worker.exe"],
    ),
    steps=[[*clients.MONO.program, "mcs", "-r:System.Core", "-out:worker.exe", "worker.cs"]],
)


def _worker(ecosystem: Ecosystem, name: str) -> list[str | Path]:
    """Returns the program of an ecosystem, with the worker in place of the driver."""
    return [*ecosystem.program[:-1], name]


COMMANDS: dict[str, list[str | Path]] = {
    "Go": [*GO.program],
    "Java": [*JAVA.program],
    "Python": _worker(clients.PYTHON, "worker.py"),
    "Node.js": ["node", "worker.js"],
    "PHP": _worker(clients.PHP, "worker.php"),
    "Ruby": _worker(clients.RUBY, "worker.rb"),
    "C": [*C.program],
    "C#": [*CSHARP.program],
    "shell": ["./worker.sh"],
}
DIRECTORIES = {"Node.js": "node", "C#": "csharp"}


@dataclass
class Recipe:
    """The worker in one language."""

    language: str
    start: Start
    shop: Servers

    def run(self, order: int = 42) -> Program:
        directory = DIRECTORIES.get(self.language, self.language.lower())
        port = str(self.shop[0].port)
        shop = {"SHOP_URL": self.shop.urls[0], "SHOP_HOST": "127.0.0.1", "SHOP_PORT": port}
        return self.start([*COMMANDS[self.language], str(order)], f"serve/{directory}", **shop)

    def lock(self) -> tuple[Program, int]:
        """Starts a worker, and waits until it has locked the order. Returns it and its fence."""
        worker = self.run()
        return worker, int(worker.wait_for(r"order 42 locked, fence (\d+)")[1])

    def pay(self) -> None:
        self.shop[0].command("RPUSH", "payments:42", "paid")

    @property
    def order(self) -> list[object]:
        """The fence and the status of the order in the shop."""
        reply = self.shop[0].command("HMGET", "order:42", "fence", "status")
        assert isinstance(reply, list)
        return [*reply]


@pytest.fixture
def daemon(servers: Servers, environment: dict[str, str], tmp_path: Path) -> Iterator[Daemon]:
    quorlock = CommandLine("cargo", servers.urls)
    with Daemon(quorlock, tmp_path / "socket", "--ttl", "3s") as daemon:
        environment["QUORLOCK_SOCKET"] = str(daemon.path)
        yield daemon
        assert daemon.terminate().returncode == 0


@pytest.fixture(params=COMMANDS)
def recipe(
    request: pytest.FixtureRequest,
    daemon: Daemon,
    start: Start,
    start_servers: Callable[..., Servers],
) -> Recipe:
    (library,) = (each for each in clients.TOOLS if each.language == request.param)
    need(library)
    for language, ecosystem in {"Go": GO, "Java": JAVA, "C": C, "C#": CSHARP}.items():
        if language == request.param:
            ecosystem.install()
    if request.param == "Node.js":
        request.getfixturevalue("start_node")  # installs the packages
    return Recipe(request.param, start, start_servers(1))


def test_one_worker_at_a_time_handles_an_order(recipe: Recipe, servers: Servers) -> None:
    worker, fence = recipe.lock()
    other = recipe.run()
    other.wait_for("order 42 is being handled")
    assert other.end() == 0, other.text
    recipe.pay()
    worker.wait_for("order 42 paid")
    assert worker.end() == 0, worker.text
    assert recipe.order == [str(fence), "paid"]
    wait_until(lambda: not keys(servers))


def test_a_killed_worker_frees_the_order(recipe: Recipe) -> None:
    worker, fence = recipe.lock()
    worker.kill()
    other, next_fence = recipe.lock()
    assert next_fence > fence
    recipe.pay()
    assert other.end() == 0, other.text


def test_a_worker_that_has_lost_its_lease_writes_nothing(
    recipe: Recipe, servers: Servers, daemon: Daemon
) -> None:
    worker, _ = recipe.lock()
    with daemon.connect() as watcher:
        (holder,) = (each for each in watcher.status()["clients"] if each["leases"])
        steal(servers, "orders:42")
        assert watcher.ask("LOST", f"{holder['id']}-1")
    recipe.pay()
    assert worker.end() != 0
    assert re.search("LEASELOST", worker.text)
    assert recipe.order == [None, None]


def test_a_late_write_is_refused(recipe: Recipe) -> None:
    worker, fence = recipe.lock()
    # A later worker has written.
    recipe.shop[0].command("HSET", "order:42", "fence", fence + 1, "status", "shipped")
    recipe.pay()
    assert worker.end() != 0
    assert re.search("a later worker has written", worker.text)
    assert recipe.order == [str(fence + 1), "shipped"]
