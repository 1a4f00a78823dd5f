"""Checks of the proof's text that need no solver. `make proof` runs the proof itself."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from proof import concrete, properties
from proof.assumptions import NAMES, lemmas
from proof.controls import CONTROLS
from proof.invariant import fences, guard, lock, modes, semaphores, transfer
from proof.state import FIELDS, State
from proof.step import PARAMETERS, apply, parameters
from proof.systems import SYSTEMS
from proof.transitions import TRANSITIONS

ROOT = Path(__file__).resolve().parents[2]


def rules(text: str) -> list[tuple[str, str]]:
    """Returns the files and functions that a transition's `Rule:` names."""
    found = re.search(r"Rule: (.*)", text, re.DOTALL)
    assert found, text
    parts = (part.split() for part in found[1].replace("\n", " ").split(","))
    return [(file, name) for file, name in parts]


@pytest.mark.parametrize("name", TRANSITIONS)
def test_rule_of_transition_exists(name: str) -> None:
    text = inspect.getdoc(TRANSITIONS[name]) or ""
    if "Rule: none" in text:
        return
    for file, function in rules(text):
        source = (ROOT / file).read_text()
        assert re.search(rf"\b(fn|struct) {function}\b", source), f"{file} has no {function}"


def test_rule_of_lemma_exists() -> None:
    for lemma in lemmas(dict.fromkeys(NAMES, 0)):
        file, function = lemma.rule.split()
        assert re.search(rf"\b(fn|struct) {function}\b", (ROOT / file).read_text()), lemma.rule


@pytest.mark.parametrize("name", TRANSITIONS)
def test_parameters_of_transition_are_known(name: str) -> None:
    assert parameters(TRANSITIONS[name]).keys() <= PARAMETERS.keys()


def test_plain_values_need_no_solver() -> None:
    script = (
        "import sys, proof.concrete, proof.systems, proof.properties; print('z3' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def some_state(things: Mapping[str, list[object]] | None = None, **values: object) -> State:
    """Returns a state with one node, client, attempt and resource."""
    domains: dict[str, list[object]] = {
        "Node": ["node"],
        "Client": ["client"],
        "Attempt": ["attempt"],
        "Extension": [],
        "Resource": ["resource"],
        "Nodes": [],
        **(things or {}),
    }
    constants = {
        "client": lambda _: "client",
        "uses": lambda *_: True,
        "writer": lambda *_: True,
        "ttl": lambda _: 10,
        "validity": lambda _: 9,
        "guarded": False,
        "window": 2,
        "memory": 60,
    }
    return concrete.state(domains, {**constants, **values})


GRANT = {
    "node": "node",
    "attempt": "attempt",
    "resource": "resource",
    "fence": 5,
    "proposal": 5,
    "pause": 2,
}


def test_grant_computes_the_next_state() -> None:
    step = apply(TRANSITIONS["grant"], some_state(sent={"attempt": True}, wall={"node": 4}), GRANT)
    assert all(step.conditions.values()), step.conditions
    after = step.after
    assert after.holds("node", "resource", "attempt") is True
    assert after.expires("node", "resource", "attempt") == 12
    assert (after.counter("node", "resource"), after.mark("node", "resource")) == (5, 5)
    assert after.counter_until("node", "resource") == 64


def test_grant_names_the_conditions_that_fail() -> None:
    state = some_state(sent={"attempt": True}, counter={("node", "resource"): 5})
    conditions = apply(TRANSITIONS["grant"], state, GRANT).conditions
    assert [name for name, holds in conditions.items() if not holds] == [
        "the fence is above the counters"
    ]


def test_every_field_claim_and_transition_has_a_sentence() -> None:
    parts = (lock, guard, fences, transfer, modes, semaphores)
    claims = [claim for part in parts for claim in part.CONJUNCTS]
    named = [value for _, value in inspect.getmembers(properties, inspect.isfunction)]
    for thing in (*claims, *TRANSITIONS.values(), *named):
        assert inspect.getdoc(thing), thing
    assert all(field.meaning.endswith(".") for field in FIELDS.values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_holds_where_nothing_has_happened(system: str) -> None:
    state = some_state(
        things={"Extension": ["extension"], "Nodes": [frozenset(["node"])]},
        majority=lambda _: True,
        member=lambda node, nodes: node in nodes,
        first=lambda _: "resource",
        excludes=lambda *_: False,
        lease=lambda _: "attempt",
        parent=lambda _: "attempt",
        counter_until={("node", "resource"): 60},
    )
    it = SYSTEMS[system]
    claims = (*it.invariant, *it.properties)
    assert [claim.__name__ for claim in claims if claim(state) is not True] == []
    assert [name for name, holds in it.initial(state).items() if holds is not True] == []


@pytest.mark.parametrize("page", ["docs/proof.md", "docs/verification.md"])
def test_documentation_names_the_number_of_deliberate_errors(page: str) -> None:
    assert f"{len(CONTROLS)} deliberate errors" in (ROOT / page).read_text()


def test_documentation_names_the_sizes_of_the_proof() -> None:
    text = (ROOT / "docs/proof.md").read_text()
    facts = max(len(it.invariant) for it in SYSTEMS.values())
    steps = len(TRANSITIONS)
    assert f"The model has {steps} steps, and the largest system has {facts} facts" in text
    with_run = sum(bool(it.run) for it in CONTROLS)
    assert f"For {with_run} of the errors, the solver also finds" in text
