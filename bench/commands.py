"""The commands of contenders: what the floors send, and whether peers release their locks."""

from __future__ import annotations

import ast
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha1

from servers import Server, Servers, encode_command

import quorlock
from bench.contender import Contender, FailedError, Process
from bench.names import FLOOR, FLOOR_PLAIN, RUST

Command = list[str]

_MARKER = "the recording ends here"
_KEY = "recorded-key"
_SETTLE_SECONDS = 0.2
"""Seconds for commands that a library sends after it has returned."""


@dataclass(frozen=True)
class Commands:
    """The commands that a client sends to each node.

    The commands of an acquire are sent together, and so are those of a release. In them, `$key`,
    `$token` and `$time` (in microseconds) stand for what differs between cycles.
    """

    load: list[Command]
    """What loads the scripts. Sent once."""
    acquire: list[Command]
    release: list[Command]

    def text(self) -> str:
        """Returns the argument of the floor."""
        return json.dumps(asdict(self))


_DELETE = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
else
  return 0
end
"""
_DELETE_HASH = sha1(_DELETE.encode(), usedforsecurity=False).hexdigest()

PLAIN = Commands(
    load=[["SCRIPT", "LOAD", _DELETE]],
    acquire=[["SET", "$key", "$token", "NX", "PX", "10000"]],
    release=[["EVALSHA", _DELETE_HASH, "1", "$key", "$token"]],
)
"""A lock without a fence and waiters, as rslock implements it."""


def record() -> Commands:
    """Returns the commands that quorlock sends to a node in an uncontended cycle."""
    with ExitStack() as stack:
        server = stack.enter_context(Servers(1))[0]
        heard = stack.enter_context(_monitor(server))
        client = stack.enter_context(quorlock.Client([server.url], auto_extend=False))
        client.lock(_KEY).acquire().release()
        load = [each for each in heard() if each[0] in ("SCRIPT", "FUNCTION")]
        acquires, releases = [], []
        for _ in range(2):
            lease = client.lock(_KEY).acquire()
            acquires.append(heard(_KEY))
            lease.release()
            releases.append(heard(_KEY))
    return Commands(load, _general(acquires, _placeholder), _general(releases, _placeholder))


def check(contenders: Sequence[Contender]) -> None:
    """Exits with an error unless a node runs the same commands for a floor as for the library that
    it stands for, and peers release on a majority. The commands that scripts run count, too."""
    present = {each.name: each for each in contenders}
    for floor, library in [(FLOOR, RUST), (FLOOR_PLAIN, "rslock")]:
        if library in present:
            found, wanted = _cycle(present[floor]), _cycle(present[library])
            if found != wanted:
                raise SystemExit(
                    f"{floor}: {found}\n{library}: {wanted}\nCorrect bench/commands.py."
                )
    for each in contenders:
        if each.kind == "peer" and not each.needs_one_node:
            _check_release(each)


def _check_release(peer: Contender) -> None:
    """Exits with an error unless a peer releases its locks on a majority of three nodes.

    Nothing is checked if the peer fails or hangs, which the tables show.
    """
    request = {"cycles": 10, "concurrency": 2}
    with ExitStack() as stack, suppress(FailedError):
        servers = stack.enter_context(Servers(3))
        process = Process([*peer.command, *servers.urls], peer.environment)
        stack.callback(process.close)
        cycles = len(process.ask(request)["micros"])
        time.sleep(_SETTLE_SECONDS)
        stats = [str(server.command("INFO", "commandstats")) for server in servers]
        releases = sum(int(calls) for calls in re.findall(r"cmdstat_del:calls=(\d+)", str(stats)))
        if cycles != 20 or releases < 2 * cycles:
            raise SystemExit(f"{peer.name}: {cycles} of 20 cycles with {releases} releases")


def _cycle(contender: Contender) -> list[Command]:
    """Returns the commands that a node runs in one cycle of a connected contender."""
    request = {"cycles": 1, "concurrency": 1}
    with ExitStack() as stack:
        server = stack.enter_context(Servers(1))[0]
        process = Process([*contender.command, server.url], contender.environment)
        stack.callback(process.close)
        process.ask(request)
        heard = stack.enter_context(_monitor(server))
        cycles = []
        for _ in range(2):
            process.ask(request)
            cycles.append(heard(f"{contender.name}-0", scripts=True))
        return _general(cycles, lambda _: "(differs)")


@contextmanager
def _monitor(server: Server) -> Iterator[Callable[..., list[Command]]]:
    """Yields a function that returns the commands since the last call, with `$key` for the given
    key. `scripts` includes the commands that scripts run."""
    with (
        socket.create_connection(("127.0.0.1", server.port)) as connection,
        connection.makefile("r") as reader,
    ):
        connection.sendall(encode_command("MONITOR"))
        reader.readline()

        def heard(key: str | None = None, *, scripts: bool = False) -> list[Command]:
            server.command("ECHO", _MARKER)
            commands = []
            for line in iter(reader.readline, ""):
                if _MARKER in line:
                    break
                if scripts or " lua] " not in line:
                    commands.append(_words(line.partition("] ")[2]))
            if key is None:
                return commands
            return [[word.replace(key, "$key") for word in command] for command in commands]

        yield heard


def _words(text: str) -> Command:
    """Parses quoted words with escapes, as MONITOR prints them."""
    quoted = re.findall(r'"(?:[^"\\]|\\.)*"', text)
    return [ast.literal_eval(f"b{word}").decode(errors="replace") for word in quoted]


def _general(cycles: Sequence[list[Command]], differs: Callable[[str], str]) -> list[Command]:
    """Returns the commands of two cycles. `differs` replaces the words that are not the same."""
    one, other = cycles
    if [len(command) for command in one] != [len(command) for command in other]:
        raise SystemExit(f"two cycles send different commands: {one} and {other}")
    return [
        [
            word if word == counterpart else differs(word)
            for word, counterpart in zip(command, counterparts, strict=True)
        ]
        for command, counterparts in zip(one, other, strict=True)
    ]


def _placeholder(word: str) -> str:
    """Returns the placeholder for a word that is different in every cycle."""
    if re.fullmatch(r"\d{16}", word):
        return "$time"
    token, count = re.subn(r"^[0-9a-f]{40}(?=;|$)", "$token", word)
    if not count:
        raise SystemExit(f"neither a token nor a time: {word}")
    return token
