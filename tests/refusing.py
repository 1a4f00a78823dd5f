"""Puts servers into the states in which they refuse the commands of a lock."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from servers import Server, ServerReplyError
from waiting import wait_until

LOADING_ARGS = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]
"""Arguments for the server program that make it load its data slowly."""


def load(server: Server) -> None:
    """Restarts the server, which must have `LOADING_ARGS`. It is then loading for some seconds."""
    fill = "for i = 1, 3000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end"
    server.command("EVAL", fill, 0)
    server.command("SAVE")
    server.kill()
    server.spawn()
    wait_until(lambda: _answers(server, "LOADING"))


def be_replica(server: Server, master: Server) -> None:
    """Makes the server a replica of `master`, and waits until it is in sync."""
    server.command("REPLICAOF", "127.0.0.1", master.port)
    wait_until(lambda: "master_link_status:up" in str(server.command("INFO", "replication")))


def lose_master(server: Server, port: int) -> None:
    """Makes the server a replica of `port`, where no server listens, so that it refuses
    requests."""
    server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    server.command("REPLICAOF", "127.0.0.1", port)
    wait_until(lambda: _answers(server, "MASTERDOWN"))


def fill_up(server: Server) -> None:
    """Sets the memory limit so low that the server refuses all writes."""
    server.command("CONFIG", "SET", "maxmemory", 1)


def fail_to_save(server: Server) -> None:
    """Makes the server's snapshots fail, so that it refuses writes."""
    server.command("CONFIG", "SET", "save", "3600 1")
    shutil.rmtree(server.log_path.parent)
    server.command("BGSAVE")
    wait_until(lambda: "rdb_last_bgsave_status:err" in str(server.command("INFO", "persistence")))


def deny(server: Server, *rights: str) -> str:
    """Creates a user with all permissions, changed by the ACL rules `rights`.

    Returns the server's URL with the name and the password of this user.
    """
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
"""For each outcome, a function that makes a server refuse requests with this outcome.

Its arguments are that server, and another server that becomes its master if it needs one.
"""
