"""The floor: acquire and release by raw blocking sockets, waiting for a majority only.

It does what the lock needs on the wire and nothing else: no timeouts, no undo, no reconnects.
"""

from __future__ import annotations

import secrets
import select
import socket
import sys
from urllib.parse import urlsplit

from contender import serve

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"


BACKLOG = 1000
"""A node that owes so many answers is left out until it has caught up: it is frozen."""


class Floor:
    """One connection per node, and the answers that are still to come on each."""

    def __init__(self, urls: list[str]) -> None:
        self.nodes: list[socket.socket] = []
        self.poll = select.poll()
        for url in urls:
            parts = urlsplit(url)
            node = socket.create_connection((parts.hostname or "", parts.port or 6379))
            node.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.nodes.append(node)
            self.poll.register(node, select.POLLIN)
        self.by_number = {node.fileno(): node for node in self.nodes}
        self.owed = dict.fromkeys(self.by_number, 0)
        self.majority = len(self.nodes) // 2 + 1
        self.nodes[0].sendall(encode("SCRIPT", "LOAD", RELEASE))
        self.digest = self.nodes[0].recv(4096).split(b"\r\n")[1].decode()
        for node in self.nodes[1:]:
            node.sendall(encode("SCRIPT", "LOAD", RELEASE))
            node.recv(4096)

    def ask(self, asked: list[int], *words: str) -> None:
        """Sends the command to these nodes and waits until a majority has answered it."""
        message = encode(*words)
        for number in asked:
            self.by_number[number].sendall(message)
            self.owed[number] += 1
        answered = 0
        while answered < self.majority:
            for number, _ in self.poll.poll():
                # Every answer here is one line; those of earlier commands come first.
                answers = self.by_number[number].recv(4096)
                if not answers or b"-" in answers:
                    raise SystemExit(f"the floor was refused: {answers!r}")
                self.owed[number] -= answers.count(b"\n")
                answered += self.owed[number] == 0 and number in asked

    def cycle(self, _: int) -> None:
        token = secrets.token_hex(20)
        # The same nodes for both: one that gets a SET gets its release, too.
        asked = [number for number, owed in self.owed.items() if owed < BACKLOG]
        self.ask(asked, "SET", "floor", token, "NX", "PX", "10000")
        self.ask(asked, "EVALSHA", self.digest, "1", "floor", token)


def encode(*words: str) -> bytes:
    parts = [f"*{len(words)}\r\n"]
    parts += [f"${len(word)}\r\n{word}\r\n" for word in words]
    return "".join(parts).encode()


if __name__ == "__main__":
    serve(Floor(sys.argv[1:]).cycle)
