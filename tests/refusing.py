"""Servers in the states in which they refuse what a lock needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from servers import Server, ServerReplyError
from waiting import wait_until

LOADING_ARGS = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]
"""For a server that takes its time to load its data."""


def load(server: Server) -> None:
    """Restarts the server so that it is loading for several seconds."""
    fill = "for i = 1, 3000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end"
    server.command("EVAL", fill, 0)
    server.command("SAVE")
    server.kill()
    server.spawn()
    wait_until(lambda: _answers(server, "LOADING"))


def be_replica(server: Server, master: Server) -> None:
    """Makes it a replica that is up to date."""
    server.command("REPLICAOF", "127.0.0.1", master.port)
    wait_until(lambda: "master_link_status:up" in str(server.command("INFO", "replication")))


def lose_master(server: Server, port: int) -> None:
    """Makes it a replica of nobody, that does not want to tell what it knows."""
    server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    server.command("REPLICAOF", "127.0.0.1", port)
    wait_until(lambda: _answers(server, "MASTERDOWN"))


def fill_up(server: Server) -> None:
    """Leaves it no memory for anything."""
    server.command("CONFIG", "SET", "maxmemory", 1)


def fail_to_save(server: Server) -> None:
    """Makes it fail to save, and take no writes for that."""
    server.command("CONFIG", "SET", "save", "3600 1")
    shutil.rmtree(server.log_path.parent)
    server.command("BGSAVE")
    wait_until(lambda: "rdb_last_bgsave_status:err" in str(server.command("INFO", "persistence")))


def deny(server: Server, *rights: str) -> str:
    """A URL with a user that has all rights but these."""
    server.command("ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all", *rights)
    return server.url.replace("//", "//locker:secret@")


def _answers(server: Server, code: str) -> bool:
    try:
        server.command("GET", "x")
    except (OSError, ServerReplyError) as error:
        return str(error).startswith(code)
    return False


REFUSALS: dict[str, Callable[[Server, Server], object]] = {
    "loading": lambda server, _: load(server),
    "readonly": be_replica,
    "masterdown": lambda server, _: lose_master(server, 1),
    "oom": lambda server, _: fill_up(server),
    "misconf": lambda server, _: fail_to_save(server),
}
"""By the name of the outcome, what makes a server refuse in this way, with the help of another."""
