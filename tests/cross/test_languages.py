"""A lease that one language has detached is adopted in another one."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Protocol

import pytest
from command_line import CommandLine
from cross.holders import Holder, node_holder, rust_holder
from nodes import is_free
from servers import Servers
from waiting import wait_until

import quorlock

WITHIN = 600_000
ROUNDS = 5


class Language(Protocol):
    """Takes a lease of the resource "r" and gives it away. Returns fences and texts."""

    def acquire(self) -> int: ...
    def detach(self) -> str: ...
    def adopt(self, text: str) -> int: ...
    def release(self) -> None: ...


class Python:
    def __init__(self, urls: list[str]) -> None:
        self.client = quorlock.Client(urls)

    def acquire(self) -> int:
        self.lease = self.client.lock("r").acquire()
        return self.lease.fence

    def detach(self) -> str:
        return self.lease.detach(WITHIN / 1000)

    def adopt(self, text: str) -> int:
        self.lease = self.client.adopt(text)
        return self.lease.fence

    def release(self) -> None:
        assert self.lease.release()


class Other:
    """A language whose client is a process."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder

    def acquire(self) -> int:
        return int(self.holder.ask(lock="r")["ok"]["fence"])

    def detach(self) -> str:
        return str(self.holder.ask(detach="r", within=WITHIN)["ok"])

    def adopt(self, text: str) -> int:
        answer = self.holder.ask(adopt="r", text=text)
        if error := answer.get("error"):
            raise {"LEASE_LOST": quorlock.LeaseLostError}[error](error)
        return int(answer["ok"]["fence"])

    def release(self) -> None:
        assert self.holder.ask(release="r") == {"ok": True}


@pytest.fixture
def languages(servers: Servers) -> Iterator[list[Language]]:
    node, rust = node_holder(servers.urls), rust_holder(servers.urls)
    python = Python(servers.urls)
    yield [python, Other(node), Other(rust)]
    python.client.close()
    node.close()
    rust.close()


def test_each_language_adopts_what_another_has_detached(
    languages: list[Language], servers: Servers
) -> None:
    # All pairs, each way: a lease goes from the first to the second and then to the third.
    for _ in range(ROUNDS):
        for order in itertools.permutations(languages):
            fence = order[0].acquire()
            texts = []
            for giver, adopter in itertools.pairwise([*order, order[0]]):
                texts.append(giver.detach())
                adopted = adopter.adopt(texts[-1])
                assert adopted > fence
                fence = adopted
                with pytest.raises(quorlock.LeaseLostError):
                    giver.adopt(texts[0])
            order[0].release()
            wait_until(lambda: is_free(servers, "r"))
            for language, text in zip(order, texts, strict=True):
                with pytest.raises(quorlock.LeaseLostError):
                    language.adopt(text)


def test_languages_share_a_resource(servers: Servers) -> None:
    shared = {"mode": "shared", "wait": 0}
    with (
        quorlock.Client(servers.urls, wait=0) as client,
        node_holder(servers.urls) as node,
        rust_holder(servers.urls) as rust,
    ):
        config = client.lock("r", mode="shared")
        with config as reader:
            answers = [holder.ask(lock="r", options=shared)["ok"] for holder in (node, rust)]
            fences = [int(answer["fence"]) for answer in answers]
            assert min(fences) >= reader.fence
            assert client.lock("r").try_acquire() is None
            assert node.ask(release="r") == rust.ask(release="r") == {"ok": True}
        writer = int(node.ask(lock="r", options={"wait": 10_000})["ok"]["fence"])
        assert writer > max(fences)
        assert config.try_acquire() is None
        assert rust.ask(lock="r", options=shared)["error"] == "TIMEOUT"
        assert node.ask(release="r") == {"ok": True}
    wait_until(lambda: is_free(servers, "r"))


def test_languages_see_and_adopt_the_permits_of_each_other(servers: Servers) -> None:
    with quorlock.Client(servers.urls, wait=0) as client, node_holder(servers.urls) as node:
        semaphore = client.semaphore("api", limit=3)
        options = {"limit": 3, "permits": 2, "wait": 0}
        answer = node.ask(permit="api", options=options, **{"as": "p"})["ok"]
        with semaphore as lease:
            assert sorted([lease.slot, *answer["slots"]]) == [0, 1, 2]
            assert semaphore.try_acquire() is None
            assert node.ask(permit="api", options=options, **{"as": "q"})["error"] == "TIMEOUT"
            of_node = [
                holder.slot
                for holder in semaphore.status().holders
                if answer["token"].startswith(holder.token)
            ]
            assert of_node == answer["slots"]
        adopted = client.adopt(str(node.ask(detach="p", within=600_000)["ok"]))
        assert list(adopted.slots) == answer["slots"]
        assert adopted.fence > int(answer["fence"])
        text = adopted.detach(600)
        assert node.ask(adopt="p", text=text)["ok"]["slots"] == answer["slots"]
        assert node.ask(release="p") == {"ok": True}
        assert semaphore.acquire(permits=3).release()


def test_the_command_line_takes_and_gives_leases(
    languages: list[Language], servers: Servers
) -> None:
    program = CommandLine("cargo", servers.urls)
    environment = "echo $QUORLOCK_LEASE $QUORLOCK_FENCE"
    for language in languages:
        done = program.run("run", "--detach", "r", "-c", environment)
        assert done.returncode == 0, done
        fence = language.adopt(done.stdout.strip())
        acquired = done.stderr.splitlines()[0]
        assert int(acquired.rpartition(" ")[2]) < fence
        text = language.detach()
        done = program.run(
            "run", "--adopt", "-c", environment, environment={"QUORLOCK_LEASE": text}
        )
        assert done.returncode == 0, done
        assert int(done.stdout) > fence
        wait_until(lambda: is_free(servers, "r"))


ADOPTERS = {
    "Python": [
        sys.executable,
        "-c",
        "import os, quorlock\n"
        "with quorlock.Client().adopt(os.environ.pop('QUORLOCK_LEASE')) as lease:\n"
        "    print(lease.resource, lease.fence)",
    ],
    "Node.js": [
        "node",
        "--input-type=module",
        "--eval",
        "import { Client } from 'quorlock'\n"
        "const client = new Client()\n"
        "const lease = await client.adopt(process.env.QUORLOCK_LEASE)\n"
        "console.log(lease.resource, lease.fence)\n"
        "await lease.release()\n"
        "await client.close()",
    ],
}


@pytest.mark.parametrize("language", ADOPTERS)
def test_a_command_adopts_the_lease_of_its_parent(language: str, servers: Servers) -> None:
    program = CommandLine("cargo", servers.urls)
    done = program.run("run", "--detach", "r", "--", *ADOPTERS[language])
    assert done.returncode == 0, done
    resource, fence = done.stdout.split()
    acquired = done.stderr.splitlines()[0]
    assert (resource, int(acquired.rpartition(" ")[2]) < int(fence)) == ("r", True)
    wait_until(lambda: is_free(servers, "r"))
