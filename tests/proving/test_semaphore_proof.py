"""Semaphores in the proof, without a solver: which slots a client may choose, and the run in the
documentation that shows why nodes do not count the members of a set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from proof import concrete, properties
from proof.controls import CONTROLS
from proof.logic import negated
from proof.state import State
from proof.step import apply
from proof.systems import MEMORY, System
from proof.transitions import TRANSITIONS

ROOT = Path(__file__).resolve().parents[2]
NODES = ("node 1", "node 2", "node 3")
HOLDERS = ("A", "B", "C")
KEYS = {"slot 0": 0, "slot 1": 1, "slot 0 of limit 2": 0}
"""The numbers of slots, by key."""


def some_state(uses: Mapping[str, str], limit: int, keys: tuple[str, ...]) -> State:
    """Returns a state of three nodes, and of attempts that each want one slot."""
    domains = {
        "Node": list(NODES),
        "Client": list(uses),
        "Attempt": list(uses),
        "Extension": [],
        "Resource": list(keys),
        "Nodes": [],
    }
    values = {
        "client": lambda a: a,
        "uses": lambda a, resource: uses[a] == resource,
        "first": lambda a: uses[a],
        "writer": lambda *_: True,
        "excludes": lambda a, b: a != b and uses[a] == uses[b],
        "slot": lambda resource: KEYS[resource],
        "limit": lambda _: limit,
        "member": lambda node, nodes: node in nodes,
        "majority": lambda nodes: len(nodes) > 1,
        "ttl": lambda _: 10,
        "validity": lambda _: 9,
        "guarded": False,
        "window": 10,
        "memory": 60,
        "step": 1,
    }
    return concrete.state(domains, values)


def refusals(slot: str, limit: int, keys: tuple[str, ...]) -> list[str]:
    """Returns the conditions of `begin_round` that do not hold for a client that wants a slot."""
    step = apply(TRANSITIONS["begin_round"], some_state({"A": slot}, limit, keys), {"attempt": "A"})
    return [name for name, holds in step.conditions.items() if not holds]


def test_client_chooses_only_slots_below_its_limit() -> None:
    keys = ("slot 0", "slot 1")
    assert refusals("slot 1", 2, keys) == []
    assert refusals("slot 1", 1, keys) == ["its slots are below its limit"]


def test_clients_with_different_limits_have_the_same_keys() -> None:
    assert refusals("slot 0", 2, ("slot 0", "slot 0 of limit 2")) == [
        "each client has the same keys for these slots"
    ]


def drawn() -> list[list[set[str]]]:
    """Returns the members of the set on each node after each step, as the documentation draws
    them."""
    text = (ROOT / "docs/proof.md").read_text()
    table = re.search(r"\| step \| node 1 \| node 2 \| node 3 \|.*\n\|.*\n((?:\|.*\n)+)", text)
    assert table
    rows = [row.strip("|").split("|")[1:4] for row in table[1].splitlines()]
    return [[set(re.findall(r"\b[ABC]\b", cell)) for cell in row] for row in rows]


def play(system: System) -> tuple[State, list[str]]:
    """Plays the steps that the documentation draws. Returns the state after them, and which of
    their conditions did not hold."""
    s = some_state(dict.fromkeys(HOLDERS, "slot 0"), 2, ("slot 0",))
    refused: list[str] = []

    def take(name: str, **arguments: object) -> None:
        nonlocal s
        step = apply(system.transitions[name], s, arguments)
        refused.extend(f"{name}: {text}" for text, holds in step.conditions.items() if not holds)
        s = step.after

    before: list[set[str]] = [set(), set(), set()]
    for number, after in enumerate(drawn()):
        holder, fence = HOLDERS[number], number + 1
        take("begin_round", attempt=holder)
        voters = []
        for node, old, new in zip(NODES, before, after, strict=True):
            if new != old:
                assert new - old == {holder}
                voters.append(node)
                at = {"node": node, "attempt": holder}
                take("grant", **at, fence=fence, proposal=fence, resource="slot 0", pause=0)
                take("count_vote", **at)
        quorum = frozenset(voters)
        take("fix_fence", node=voters[0], attempt=holder, weighed=quorum, fence=fence)
        take("win", attempt=holder, quorum=quorum, keepers=quorum, storers=quorum)
        before = after
    return s, refused


def test_drawn_run_has_three_holders_where_nodes_count_two_members() -> None:
    assert max(len(members) for row in drawn() for members in row) == 2
    counted = next(it for it in CONTROLS if it.name == "counted semaphore").broken()
    s, refused = play(counted)
    assert refused == []
    assert [s.valid(holder) for holder in HOLDERS] == [True, True, True]
    assert negated(properties.exclusion(s))


def test_rules_refuse_the_drawn_run() -> None:
    _, refused = play(MEMORY)
    assert refused[0] == "grant: all resources are free"
