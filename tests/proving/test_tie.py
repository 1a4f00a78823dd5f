"""The trace checker (`proof/tie`) accepts a correct run, and refuses wrong steps by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proof.tie.checking import Result, check
from proof.tie.units import EPOCH

MILLISECOND = 1_000_000
TTL = 1_000 * MILLISECOND
VALIDITY = TTL - TTL // 100 - 2 * MILLISECOND
ORIGIN = 5_000 * MILLISECOND
MEMORY = 60_000 * MILLISECOND
NODES = 3
FENCE = EPOCH + 1_000

Line = list[Any]


class Log:
    """The steps of one client and three nodes, all of whose clocks are right."""

    def __init__(self) -> None:
        self.lines: list[Line] = [
            [0, "world", "test", [[0, 1, 0]] * NODES],
            [0, "process", "client", 1, ORIGIN],
        ]
        self.resources = ["r"]
        self.mode: Line = []
        """The resources of the next steps, and the mode of the next round: none for `exclusive`."""

    def want(self, slots: list[int], limit: int, key: str = "{r}:permit:") -> None:
        """Lets the next steps be of rounds for permits of the semaphore `r`."""
        modes = {f"{key}{slot}": ["{r}:permits", slot, limit] for slot in slots}
        self.resources, self.mode = list(modes), [modes]

    def client(self, now: int, *step: Any) -> None:
        """Adds a step of the client, at a time in milliseconds."""
        time = now * MILLISECOND
        self.lines.append([time, "client", ORIGIN + time, *step])

    def node(
        self, now: int, node: int, what: str, lock: Line, stored: Line, batch: int = 0
    ) -> None:
        """Adds a step of a node."""
        now, each = now * MILLISECOND, [[resource, *stored] for resource in self.resources]
        self.lines.append([now, "node", node, what, [lock], each, batch])

    def begin(self, now: int, token: str, giver: str | None = None, *mode: Any) -> None:
        """Adds the beginning of a round; an adopter's if there is a giver."""
        sent, named = ORIGIN + now * MILLISECOND, mode or self.mode
        times = (sent, TTL, sent + VALIDITY)
        self.client(now, "begin", token, self.resources, *times, giver, 0.01, *named)

    def grant(self, now: int, node: int, token: str, fence: int = FENCE) -> None:
        stored = [token, TTL, fence, TTL + MEMORY]
        self.node(now, node, "acquire", [token, TTL, fence, fence], stored)

    def transfer(self, now: int, node: int, token: str, fence: int) -> None:
        stored = [token, TTL, fence, TTL + MEMORY]
        self.node(now, node, "transfer", [token, TTL, fence, fence], stored)

    def read(
        self, now: int, token: str, fence: int, others: list[Line] | None = None, left: int = TTL
    ) -> None:
        """Adds a shared round that wins with the first two nodes. They have `others`, too, which
        are tokens with the times that are left, and `left` is the time left of the marker."""
        self.begin(now, token, None, "shared")
        for node in range(2):
            stored = [[*(others or []), [token, TTL]], left, fence, TTL + MEMORY]
            self.node(now, node, "acquire", [token, TTL, fence, fence], stored)
        end = ORIGIN + now * MILLISECOND + VALIDITY
        self.vote(now + 1, 0, token, None, fence)
        self.vote(now + 1, 1, token, ["won", fence, end], fence)
        self.client(now + 1, "valid", token, True)

    def vote(
        self, now: int, node: int, token: str, outcome: Line | None, fence: int = FENCE
    ) -> None:
        self.client(now, "round", token, "vote", node, fence, None, [], outcome)

    def win(self, now: int, token: str, fence: int = FENCE) -> None:
        """Adds a round that wins with the first two nodes, a millisecond later."""
        self.begin(now, token)
        for node in range(2):
            self.grant(now, node, token, fence)
        end = ORIGIN + now * MILLISECOND + VALIDITY
        self.vote(now + 1, 0, token, None, fence)
        self.vote(now + 1, 1, token, ["won", fence, end], fence)
        self.client(now + 1, "valid", token, True)

    def release(self, now: int, token: str, fence: int = FENCE) -> None:
        self.client(now, "finish", token)
        for node in range(2):
            self.delete(now + 1, node, token, fence)

    def upgrade(self, now: int, token: str, reader: str) -> None:
        """Adds the round of an upgrade."""
        self.client(now, "upgrading", reader, ORIGIN + VALIDITY)
        self.begin(now, token, reader, "upgrade")

    def prolong(self, now: int, token: str) -> None:
        """Adds an extension of a reader by three times the ttl, which two nodes confirm."""
        sent, ttl, validity = ORIGIN + now * MILLISECOND, 3 * TTL, 3 * TTL - 3 * (TTL - VALIDITY)
        self.client(now, "extending", token, sent, ttl, sent + validity)
        self.client(now, "sending", now, [[token, sent, ttl]])
        for node in range(2):
            stored = [[[token, ttl]], ttl, FENCE, ttl + MEMORY]
            self.node(now, node, "extend", [token, ttl, True], stored, now)
        for node, outcome in enumerate((None, "Confirmed")):
            details = (node, "Yes", outcome, sent + validity)
            self.client(now + 1, "answered", token, sent, ttl, *details)

    def delete(self, now: int, node: int, token: str, fence: int = FENCE) -> None:
        self.node(now, node, "release", [token, None, True], [None, 0, fence, MEMORY])

    def keep(self, now: int, node: int, token: str, left: int, fence: int = FENCE) -> None:
        """Adds a release that keeps the key for a second, and the time that the node keeps it."""
        kept = 1_000 * MILLISECOND
        self.node(now, node, "release", [token, kept, True], [token, left, fence, MEMORY])

    def extend(self, now: int, token: str, nodes: int, fence: int = FENCE) -> None:
        """Adds an extension that so many nodes confirm, a millisecond later."""
        sent = ORIGIN + now * MILLISECOND
        self.client(now, "extending", token, sent, TTL, sent + VALIDITY)
        self.client(now, "sending", now, [[token, sent, TTL]])
        for node in range(nodes):
            stored = [token, TTL, fence, TTL + MEMORY]
            self.node(now, node, "extend", [token, TTL, True], stored, now)
        for node in range(nodes):
            is_last = node == nodes - 1
            details = (node, "Yes", "Confirmed" if is_last else None, sent + VALIDITY)
            self.client(now + 1, "answered", token, sent, TTL, *details)


def checked(log: Log, directory: Path) -> Result:
    file = directory / "test.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in log.lines))
    return check(file)


def test_correct_run_is_accepted(tmp_path: Path) -> None:
    log = Log()
    log.win(0, "first")
    log.extend(500, "first", 2)
    log.client(1_200, "valid", "first", True)
    log.release(1_300, "first")
    log.win(1_400, "second", FENCE + 1_400_000)
    log.client(1_500, "finish", "second")
    for node in range(2):
        log.keep(1_500, node, "second", 1_000 * MILLISECOND, FENCE + 1_400_000)
    log.win(2_600, "third", FENCE + 2_600_000)
    result = checked(log, tmp_path)
    assert result.error == ""
    assert result.transitions > 20


def test_handed_over_lease_is_accepted(tmp_path: Path) -> None:
    log = Log()
    log.win(0, "first")
    log.client(2, "detached", "first", [2])
    fence = FENCE + 4_000
    log.begin(4, "lost", "first")
    log.transfer(4, 0, "lost", fence)
    log.client(5, "round", "lost", "abandon", None, None, None, [0], None)
    log.node(5, 0, "give_back", ["lost", TTL, True], ["first", TTL, fence, MEMORY])
    log.begin(6, "second", "first")
    for node in range(2):
        log.transfer(6, node, "second", fence + 2_000)
    log.vote(7, 0, "second", None, fence + 2_000)
    end = ORIGIN + 6 * MILLISECOND + VALIDITY
    log.vote(7, 1, "second", ["won", fence + 2_000, end], fence + 2_000)
    log.client(8, "valid", "second", True)
    log.client(8, "valid", "first", False)
    log.release(9, "second", fence + 2_000)
    assert checked(log, tmp_path).error == ""


READ, LATER = FENCE + 2_000, FENCE + 1_400_000
"""The fence of a second reader, and of a writer after both."""


def test_readers_and_then_a_writer_are_accepted(tmp_path: Path) -> None:
    log = Log()
    log.read(0, "first", FENCE)
    log.read(2, "second", READ, [["first", TTL - 2 * MILLISECOND]])
    log.client(4, "valid", "first", True)
    log.client(5, "finish", "first")
    left = TTL - 3 * MILLISECOND
    for node in range(2):
        stored = [[["second", left]], left, READ, MEMORY]
        log.node(5, node, "release", ["first", None, True], stored)
    # A reader whose process died leaves its key until that expires.
    log.win(1_400, "third", LATER)
    assert checked(log, tmp_path).error == ""


def test_reader_is_extended_beside_another(tmp_path: Path) -> None:
    log = Log()
    log.read(0, "first", FENCE)
    log.read(2, "second", READ, [["first", TTL - 2 * MILLISECOND]])
    sent = ORIGIN + 500 * MILLISECOND
    log.client(500, "extending", "first", sent, TTL, sent + VALIDITY)
    log.client(500, "sending", 1, [["first", sent, TTL]])
    for node in range(2):
        readers = [["first", TTL], ["second", TTL - 498 * MILLISECOND]]
        log.node(500, node, "extend", ["first", TTL, True], [readers, TTL, READ, MEMORY], 1)
    for node, outcome in enumerate((None, "Confirmed")):
        details = (node, "Yes", outcome, sent + VALIDITY)
        log.client(501, "answered", "first", sent, TTL, *details)
    log.client(1_200, "valid", "first", True)
    assert checked(log, tmp_path).error == ""


def test_shared_lease_is_handed_over_beside_another(tmp_path: Path) -> None:
    log = Log()
    log.read(0, "first", FENCE)
    log.read(2, "second", READ, [["first", TTL - 2 * MILLISECOND]])
    log.client(4, "detached", "first", [2])
    log.begin(4, "third", "first", "shared")
    fence = READ + 2_000
    for node in range(2):
        readers = [["second", TTL - 2 * MILLISECOND], ["third", TTL]]
        stored = [readers, TTL, fence, TTL + MEMORY]
        log.node(4, node, "transfer", ["third", TTL, fence, fence], stored)
    log.vote(5, 0, "third", None, fence)
    end = ORIGIN + 4 * MILLISECOND + VALIDITY
    log.vote(5, 1, "third", ["won", fence, end], fence)
    log.client(6, "valid", "second", True)
    log.client(6, "valid", "third", True)
    assert checked(log, tmp_path).error == ""


def test_round_may_be_shared_for_one_of_its_resources(tmp_path: Path) -> None:
    log = Log()
    log.read(0, "first", FENCE)
    sent = ORIGIN + 2 * MILLISECOND
    modes = {"r": "shared", "q": "exclusive"}
    log.client(2, "begin", "second", ["q", "r"], sent, TTL, sent + VALIDITY, None, 0.01, modes)
    readers = [["first", TTL - 2 * MILLISECOND], ["second", TTL]]
    stored = [["q", "second", TTL, READ, MEMORY + TTL], ["r", readers, TTL, READ, MEMORY + TTL]]
    for node in range(2):
        line = ["acquire", [["second", TTL, READ, READ]], stored, 0]
        log.lines.append([2 * MILLISECOND, "node", node, *line])
    log.vote(3, 0, "second", None, READ)
    log.vote(3, 1, "second", ["won", READ, sent + VALIDITY], READ)
    log.client(4, "valid", "first", True)
    log.client(4, "valid", "second", True)
    assert checked(log, tmp_path).error == ""


def test_reader_is_accepted_beside_a_downgraded_lease(tmp_path: Path) -> None:
    log = Log()
    log.win(0, "first")
    log.client(2, "downgraded", "first")
    left = TTL - 4 * MILLISECOND
    for node in range(2):
        stored = [[["first", left]], left, FENCE, MEMORY + TTL]
        log.node(4, node, "downgrade", ["first", True], stored)
    log.read(5, "second", READ, [["first", TTL - 5 * MILLISECOND]])
    log.client(7, "valid", "first", True)
    log.client(7, "valid", "second", True)
    # An UNDO that was sent before the downgrade finds no reader.
    log.client(8, "finish", "first")
    readers = [["first", TTL - 8 * MILLISECOND], ["second", TTL - 3 * MILLISECOND]]
    stored = [readers, TTL - 3 * MILLISECOND, READ, MEMORY]
    log.node(8, 0, "release", ["first", None, False, []], stored)
    stored = [[["second", TTL - 3 * MILLISECOND]], TTL - 3 * MILLISECOND, READ, MEMORY]
    log.node(8, 1, "release", ["first", None, True, ["r"]], stored)
    assert checked(log, tmp_path).error == ""


def test_upgraded_lease_is_accepted(tmp_path: Path) -> None:
    log = Log()
    log.read(0, "first", FENCE)
    log.upgrade(2, "second", "first")
    for node in range(2):
        log.transfer(2, node, "second", READ)
    log.client(3, "valid", "first", True)
    log.vote(3, 0, "second", None, READ)
    log.vote(3, 1, "second", ["won", READ, ORIGIN + 2 * MILLISECOND + VALIDITY], READ)
    log.client(3, "finish", "first")
    log.client(3, "upgraded", "second")
    log.client(4, "valid", "first", False)
    log.client(4, "valid", "second", True)
    log.release(5, "second", READ)
    assert checked(log, tmp_path).error == ""


def test_permits_of_clients_with_different_limits_are_accepted(tmp_path: Path) -> None:
    log = Log()
    log.want([0], 1)
    log.win(0, "first")
    log.want([1, 2], 3)
    log.win(2, "second", FENCE + 2_000)
    log.client(4, "valid", "first", True)
    log.extend(500, "second", 2, FENCE + 2_000)
    log.client(900, "valid", "second", True)
    log.want([0], 1)
    log.release(901, "first")
    log.want([0], 3)
    log.win(903, "third", FENCE + 903_000)
    log.client(905, "valid", "second", True)
    assert checked(log, tmp_path).error == ""


def test_handed_over_permits_are_accepted(tmp_path: Path) -> None:
    log = Log()
    log.want([1, 3], 4)
    log.win(0, "first")
    log.client(2, "detached", "first", [2])
    log.begin(4, "second", "first")
    for node in range(2):
        log.transfer(4, node, "second", READ)
    log.vote(5, 0, "second", None, READ)
    log.vote(5, 1, "second", ["won", READ, ORIGIN + 4 * MILLISECOND + VALIDITY], READ)
    log.client(6, "valid", "second", True)
    assert checked(log, tmp_path).error == ""


def _slot_beyond_the_limit(log: Log) -> None:
    log.want([0, 2], 2)
    log.begin(0, "first")


def _slot_below_zero(log: Log) -> None:
    log.want([-1], 2)
    log.begin(0, "first")


def _two_leases_of_a_slot(log: Log) -> None:
    log.want([1], 2)
    log.win(0, "first")
    log.want([1], 3)
    log.win(2, "second", READ)


def _key_that_contains_the_limit(log: Log) -> None:
    log.want([1], 2)
    log.win(0, "first")
    log.want([1], 3, "{r}:permit:3:")
    log.win(2, "second", READ)


def _key_of_two_slots(log: Log) -> None:
    log.want([1], 2)
    log.begin(0, "first")
    log.begin(1, "second", None, {"{r}:permit:1": ["{r}:permits", 0, 2]})


def _slot_that_one_node_sets_in_place_of_two(log: Log) -> None:
    log.want([0, 1], 2)
    log.begin(0, "first")
    log.grant(0, 0, "first")
    stored: list[Line] = [["{r}:permit:0", "first", TTL], ["{r}:permit:1", None, 0]]
    log.lines[-1][5] = [[*each, FENCE, TTL + MEMORY] for each in stored]


def _adopter_with_another_limit(log: Log) -> None:
    log.want([0], 1)
    log.win(0, "first")
    log.client(2, "detached", "first", [])
    log.want([0], 2)
    log.begin(4, "second", "first")


def _adopter_of_another_slot(log: Log) -> None:
    log.want([0], 2)
    log.win(0, "first")
    log.client(2, "detached", "first", [])
    log.want([1], 2)
    log.begin(4, "second", "first")


def _permit_without_a_limit(log: Log) -> None:
    log.want([0], 1)
    log.begin(0, "first", None, "exclusive")


def _permits_with_two_limits(log: Log) -> None:
    log.want([0, 1], 2)
    log.mode[0]["{r}:permit:1"] = ["{r}:permits", 1, 3]
    log.begin(0, "first")


def _permit_without_a_number(log: Log) -> None:
    log.want([0], 1)
    log.begin(0, "first", None, {"{r}:permit:0": ["{r}:permits", None, 1]})


def _late_transfer(log: Log, left: int) -> None:
    """Adds an upgrade that is lost, an extension of its lease by three times the ttl, and then the
    TRANSFER on one node, which keeps the key for the time that is left."""
    log.read(0, "first", FENCE)
    log.upgrade(2, "second", "first")
    log.client(3, "finish", "second")
    log.prolong(100, "first")
    stored = ["second", left, READ, left + MEMORY]
    log.node(200, 0, "transfer", ["second", TTL, READ, READ], stored)


LEFT = 3 * TTL - 100 * MILLISECOND
"""The time left of that extension when the TRANSFER arrives."""


def test_late_upgrade_that_shortens_nothing_is_accepted(tmp_path: Path) -> None:
    log = Log()
    _late_transfer(log, LEFT)
    left = LEFT - 100 * MILLISECOND
    stored = [[["first", left]], left, READ, MEMORY + TTL]
    log.node(300, 0, "give_back", ["second", TTL, True], stored)
    log.client(2_900, "valid", "first", True)
    assert checked(log, tmp_path).error == ""


def _late_upgrade_that_shortens(log: Log) -> None:
    _late_transfer(log, TTL)


def _give_back_that_shortens(log: Log) -> None:
    _late_transfer(log, LEFT)
    stored = [[["first", TTL]], TTL, READ, MEMORY + TTL]
    log.node(300, 0, "give_back", ["second", TTL, True], stored)


def _upgrade_beside_a_reader(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.read(2, "second", READ, [["first", TTL - 2 * MILLISECOND]])
    log.upgrade(4, "third", "first")
    log.transfer(4, 0, "third", READ + 2_000)


def _upgrade_of_a_lease_that_goes_on(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.upgrade(2, "second", "first")
    for node in range(2):
        log.transfer(2, node, "second", READ)
    log.vote(3, 0, "second", None, READ)
    log.vote(3, 1, "second", ["won", READ, ORIGIN + 2 * MILLISECOND + VALIDITY], READ)
    log.client(3, "upgraded", "second")


def _upgrade_without_a_majority(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.upgrade(2, "second", "first")
    log.client(3, "finish", "first")
    log.client(3, "upgraded", "second")


def _upgrade_undone_by_deletion(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.upgrade(2, "second", "first")
    log.transfer(2, 0, "second", READ)
    log.client(3, "finish", "second")
    log.delete(4, 0, "second", READ)


def _downgrade_of_an_exclusive_lease(log: Log) -> None:
    log.win(0, "first")
    left = TTL - 2 * MILLISECOND
    stored = [[["first", left]], left, FENCE, MEMORY + TTL]
    log.node(2, 0, "downgrade", ["first", True], stored)


def _downgrade_that_frees_the_resource(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "downgraded", "first")
    log.node(4, 0, "downgrade", ["first", True], [None, 0, FENCE, MEMORY + TTL])


def _writer_beside_a_reader(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.begin(2, "second")
    log.grant(2, 0, "second", READ)


def _reader_beside_a_writer(log: Log) -> None:
    log.win(0, "first")
    log.read(2, "second", READ)


def _reader_that_expired_is_extended(log: Log) -> None:
    log.read(0, "first", FENCE)
    sent = ORIGIN + 900 * MILLISECOND
    log.client(900, "extending", "first", sent, TTL, sent + VALIDITY)
    log.client(900, "sending", 1, [["first", sent, TTL]])
    stored = [[["first", TTL]], TTL, FENCE, MEMORY]
    log.node(1_100, 0, "extend", ["first", TTL, True], stored, 1)


def _reader_repaired_beside_a_writer(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.begin(2, "second")
    log.grant(2, 2, "second", READ)
    stored = [[["first", TTL]], TTL, READ, MEMORY]
    log.node(3, 2, "heal", ["first", TTL, FENCE, "Clean"], stored)


def _reader_that_deletes_another(log: Log) -> None:
    log.read(0, "first", FENCE)
    log.read(2, "second", READ, [["first", TTL - 2 * MILLISECOND]])
    log.client(4, "finish", "first")
    log.node(4, 0, "release", ["first", None, True], [None, 0, READ, MEMORY])


def _marker_that_underlives_a_reader(log: Log) -> None:
    log.read(0, "first", FENCE, left=TTL - MILLISECOND)


def _reader_stored_as_a_writer(log: Log) -> None:
    log.begin(0, "first", None, "shared")
    log.grant(0, 0, "first")


def _writer_stored_as_a_reader(log: Log) -> None:
    log.begin(0, "first", None, "exclusive")
    stored = [[["first", TTL]], TTL, FENCE, MEMORY]
    log.node(0, 0, "acquire", ["first", TTL, FENCE, FENCE], stored)


def _unknown_mode(log: Log) -> None:
    log.begin(0, "first", None, "both")


def _mode_of_another_resource(log: Log) -> None:
    log.begin(0, "first", None, {"q": "shared"})


def _adopted_while_held(log: Log) -> None:
    log.win(0, "first")
    log.begin(4, "second", "first")


def _transferred_twice(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "detached", "first", [])
    log.begin(4, "second", "first")
    log.begin(4, "third", "first")
    log.transfer(4, 0, "second", FENCE + 4_000)
    log.transfer(4, 0, "third", FENCE + 5_000)


def _fence_of_the_giver(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "detached", "first", [])
    log.begin(4, "second", "first")
    log.transfer(4, 0, "second", FENCE)


def _silent_node_counted(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "detached", "first", [0])
    log.begin(4, "second", "first")
    log.transfer(4, 0, "second", FENCE + 4_000)
    log.vote(5, 0, "second", None, FENCE + 4_000)


def _late_acquire_after_detach(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "detached", "first", [])
    log.grant(3, 2, "first")


def _given_back_after_a_win(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "detached", "first", [])
    log.begin(4, "second", "first")
    for node in range(2):
        log.transfer(4, node, "second", FENCE + 4_000)
    log.vote(5, 0, "second", None, FENCE + 4_000)
    end = ORIGIN + 4 * MILLISECOND + VALIDITY
    log.vote(5, 1, "second", ["won", FENCE + 4_000, end], FENCE + 4_000)
    log.client(6, "finish", "second")
    stored = ["first", TTL, FENCE + 4_000, MEMORY]
    log.node(7, 0, "give_back", ["second", TTL, True], stored)


def _minority(log: Log) -> None:
    log.begin(0, "first")
    log.grant(0, 0, "first")
    log.vote(1, 0, "first", ["won", FENCE, ORIGIN + VALIDITY])


def _vote_that_no_node_gave(log: Log) -> None:
    log.begin(0, "first")
    log.grant(0, 0, "first")
    log.vote(1, 0, "first", None)
    log.vote(1, 1, "first", ["won", FENCE, ORIGIN + VALIDITY])


def _two_holders(log: Log) -> None:
    log.win(0, "first")
    log.begin(2, "second")
    log.grant(2, 0, "second", FENCE + 2_000)


def _late_win(log: Log) -> None:
    log.begin(0, "first")
    for node in range(2):
        log.grant(0, node, "first")
    log.vote(995, 0, "first", None)
    log.vote(995, 1, "first", ["won", FENCE, ORIGIN + VALIDITY])


def _late_end(log: Log) -> None:
    log.begin(0, "first")
    for node in range(2):
        log.grant(0, node, "first")
    log.vote(1, 0, "first", None)
    log.vote(1, 1, "first", ["won", FENCE, ORIGIN + VALIDITY + MILLISECOND])


def _ttl_without_drift(log: Log) -> None:
    log.client(0, "begin", "first", ["r"], ORIGIN, TTL, ORIGIN + TTL, None, 0.01)


def _old_fence(log: Log) -> None:
    log.win(0, "first")
    log.release(2, "first")
    log.begin(4, "second")
    log.grant(4, 0, "second", FENCE)


def _deleted_while_held(log: Log) -> None:
    log.win(0, "first")
    log.delete(2, 0, "first")


def _extension_by_minority(log: Log) -> None:
    log.win(0, "first")
    log.extend(500, "first", 1)


def _extension_after_end(log: Log) -> None:
    log.win(0, "first")
    log.extend(989, "first", 2)


def _valid_after_release(log: Log) -> None:
    log.win(0, "first")
    log.release(2, "first")
    log.client(4, "valid", "first", True)


def _same_token(log: Log) -> None:
    log.begin(0, "first")
    log.begin(1, "first")


def _key_that_stays(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "finish", "first")
    stored = ["first", TTL - 2 * MILLISECOND, FENCE, MEMORY]
    log.node(2, 0, "release", ["first", None, True], stored)


def _kept_while_held(log: Log) -> None:
    log.win(0, "first")
    log.keep(2, 0, "first", 1_000 * MILLISECOND)


def _kept_too_long(log: Log) -> None:
    log.win(0, "first")
    log.client(2, "finish", "first")
    log.keep(3, 0, "first", 1_001 * MILLISECOND)


def _unknown_step(log: Log) -> None:
    log.client(0, "surprise", "first")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_minority, "fix_fence: it does not hold that a majority voted"),
        (_vote_that_no_node_gave, "count_vote: it does not hold that the node granted"),
        (_two_holders, "grant: it does not hold that all resources are free"),
        (_late_win, "win: it does not hold that the validity end is ahead"),
        (_late_end, "the validity end is 1.000000 ms later than in the proof"),
        (_ttl_without_drift, "axiom: it does not hold that a lease ends before its keys"),
        (_old_fence, "grant: it does not hold that the fence is above the counters"),
        (_deleted_while_held, "delete: it does not hold that the client gave it up"),
        (_extension_by_minority, "extend: it does not hold that those that confirm are a majority"),
        (_extension_after_end, "begin_extension: it does not hold that the lease is valid"),
        (_valid_after_release, "a lease is valid for its holder, but not in the proof"),
        (_same_token, "two rounds have the token first"),
        (_key_that_stays, "has the token ['first'] for resource r, in the proof []"),
        (_kept_while_held, "retain: it does not hold that the client gave it up"),
        (_kept_too_long, "node 0 keeps r for 1.00"),
        (
            _adopted_while_held,
            "begin_round: it does not hold that a lease that is taken over has ended",
        ),
        (_transferred_twice, "swap: it does not hold that the node has the parent's keys"),
        (_fence_of_the_giver, "swap: it does not hold that the fence is above the counters"),
        (_silent_node_counted, "count_vote: it does not hold that it may vote on an adoption"),
        (
            _late_acquire_after_detach,
            "grant: it does not hold that it was not answered before the lease was detached",
        ),
        (_given_back_after_a_win, "give_back: it does not hold that it was not won"),
        (_writer_beside_a_reader, "grant: it does not hold that all resources are free"),
        (_reader_beside_a_writer, "grant: it does not hold that all resources are free"),
        (
            _reader_that_expired_is_extended,
            "confirm: it does not hold that the node has the keys",
        ),
        (
            _reader_repaired_beside_a_writer,
            "heal: it does not hold that no other token is in the way",
        ),
        (_reader_that_deletes_another, "has the token [] for resource r, in the proof ['second']"),
        (_marker_that_underlives_a_reader, "keeps others out of r for another time than"),
        (_reader_stored_as_a_writer, "node 0 stores a lease of r in the other mode"),
        (
            _writer_stored_as_a_reader,
            "downgrade: it does not hold that the lease is shared for its holder",
        ),
        (
            _downgrade_of_an_exclusive_lease,
            "downgrade: it does not hold that the lease is shared for its holder",
        ),
        (_downgrade_that_frees_the_resource, "has the token [] for resource r, in the proof"),
        (_late_upgrade_that_shortens, "node 0 keeps r for -1899.999"),
        (_give_back_that_shortens, "node 0 keeps r for -1799.999"),
        (_upgrade_beside_a_reader, "upgrade: it does not hold that no other token is in the way"),
        (
            _upgrade_of_a_lease_that_goes_on,
            "win: it does not hold that a lease that is upgraded has ended",
        ),
        (_upgrade_without_a_majority, "a lease is upgraded although the round was not won"),
        (
            _upgrade_undone_by_deletion,
            "delete: it does not hold that a lease that it was to upgrade has ended",
        ),
        (_unknown_mode, "there is no mode 'both'"),
        (_mode_of_another_resource, "there is no mode {'q': 'shared'}"),
        (
            _slot_beyond_the_limit,
            "begin_round: it does not hold that its slots are below its limit",
        ),
        (_slot_below_zero, "begin_round: it does not hold that its slots are below its limit"),
        (_two_leases_of_a_slot, "grant: it does not hold that all resources are free"),
        (
            _key_that_contains_the_limit,
            "begin_round: it does not hold that each client has the same keys for these slots",
        ),
        (_key_of_two_slots, "two slots have the key {r}:permit:1"),
        (
            _slot_that_one_node_sets_in_place_of_two,
            "has the token [] for resource {r}:permit:1, in the proof ['first']",
        ),
        (_adopter_with_another_limit, "a lease is taken over with another limit"),
        (_adopter_of_another_slot, "a lease is taken over with other resources"),
        (_permit_without_a_limit, "a round for the permit {r}:permit:0 names no limit"),
        (_permits_with_two_limits, "a round has the limits [2, 3]"),
        (_permit_without_a_number, "there is no mode {'{r}:permit:0': ['{r}:permits', None, 1]}"),
        (_unknown_step, "there is no transition for 'surprise'"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_wrong_step_is_refused(wrong: Callable[[Log], None], message: str, tmp_path: Path) -> None:
    log = Log()
    wrong(log)
    error = checked(log, tmp_path).error
    assert message in error
    assert error.startswith("test, line "), "it tells where the step is"
