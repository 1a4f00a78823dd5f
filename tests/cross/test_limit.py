"""Processes in Python and Node.js share the permits of one semaphore."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cross.holders import node_holder
from servers import Servers

import quorlock

HERE = Path(__file__).resolve().parent
PROGRAMS = [[sys.executable, str(HERE / "limited.py")], ["node", str(HERE / "limited.js")]]
ROUNDS = 20
WORKERS = 3
"""Of each process."""
LIMIT = 3


def test_no_more_permits_are_held_than_the_limit_allows(
    start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    servers = start_servers(3)
    record = tmp_path / "record"
    record.touch()
    arguments = [str(record), str(ROUNDS), str(LIMIT), *servers.urls]
    processes = [subprocess.Popen([*program, *arguments]) for program in PROGRAMS * 2]
    assert [process.wait(300) for process in processes] == [0] * len(processes)
    held: dict[int, int] = {}
    last: dict[int, int] = {}
    most = 0
    for line in record.read_text().splitlines():
        event, slot, fence = line.split()[0], *map(int, line.split()[1:])
        if event == "begin":
            assert slot in range(LIMIT)
            assert slot not in held
            assert fence > last.get(slot, 0)
            held[slot] = last[slot] = fence
            most = max(most, len(held))
        else:
            assert held.pop(slot) == fence
    assert held == {}
    assert most == LIMIT
    assert record.read_text().count("begin") == len(processes) * WORKERS * ROUNDS


def test_languages_see_and_adopt_the_permits_of_each_other(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
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
