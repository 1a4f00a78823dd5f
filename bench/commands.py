"""Checks that the floor sends the same commands as quorlock, so that they can be compared."""

from __future__ import annotations

import re
import shlex
import socket
from contextlib import ExitStack
from typing import TextIO

from contender import Contender, Process
from figures import FLOOR
from roster import OWN
from servers import Server, Servers, encode_command

_MARKER = "the cycle is over"


def check() -> None:
    """Exits with an error unless one cycle of both sends the same commands, except random parts."""
    quorlock = next(each for each in OWN if each.kind == "quorlock")
    floor = next(each for each in OWN if each.name == FLOOR)
    with Servers(1) as servers:
        wanted, found = (_cycle(servers, each) for each in (quorlock, floor))
    if wanted != found:
        raise SystemExit(
            f"the floor sends {found}\nand quorlock {wanted}\nCorrect bench/rust/src/bin/floor."
        )


def _cycle(servers: Servers, contender: Contender) -> list[list[str]]:
    """Returns the commands that a node receives in one cycle of a connected contender."""
    request = {"cycles": 1, "concurrency": 1}
    with ExitStack() as stack:
        process = Process([*contender.command, *servers.urls], contender.environment)
        stack.callback(process.close)
        process.ask(request)
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", servers[0].port)))
        reader = stack.enter_context(connection.makefile("r"))
        connection.sendall(encode_command("MONITOR"))
        reader.readline()
        process.ask(request)
        return _recorded(reader, servers[0], f"{contender.name}-0")


def _recorded(reader: TextIO, server: Server, key: str) -> list[list[str]]:
    server.command("ECHO", _MARKER)
    commands = []
    for line in iter(reader.readline, ""):
        if _MARKER in line:
            break
        if " lua] " not in line:
            commands.append(_general(shlex.split(line.partition("] ")[2]), key))
    return commands


def _general(words: list[str], key: str) -> list[str]:
    """Replaces the key, the token and the time with placeholders. Keeps the hash of the script."""
    script, others = words[:2], words[2:]
    return script + [
        re.sub(
            r"^[0-9a-f]{40}(;.*)?$", "token", re.sub(r"^\d{16}$", "time", word.replace(key, "key"))
        )
        for word in others
    ]
