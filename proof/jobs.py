"""The jobs of a check. Each runs in a new process, so its result does not depend on others."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from proof import check, second
from proof.controls import CONTROLS
from proof.report import Report
from proof.runs import RUNS
from proof.search import broken, repeat, search
from proof.solving import SEEDS, ask
from proof.systems import SYSTEMS
from proof.transitions import TRANSITIONS

CONTROL_LIMIT = 6
"""The limit of a question about a control, as in `solving.py`. To prove takes a fraction of it."""

REFUTING_LIMITS = (20, 200)
"""The limits to refute a claim that a control breaks, if none was refuted within the first one."""


def prove(name: str, only: str, solver: Callable[..., str] | None = None) -> Report:
    """Proves a transition of a system, or (`only` empty) its beginning and its properties."""
    began, system = monotonic(), SYSTEMS[name]
    asked = check.step_questions(system, only) if only else check.other_questions(system)
    wrong, number, slowest = [], 0, 0.0
    for question in asked:
        number += 1
        start = monotonic()
        result = solver(question.terms) if solver else ask(question.terms).result
        slowest = max(slowest, monotonic() - start)
        if result != "unsat":
            wrong.append(f"{name}: {question.of} / {question.claim}: not proved ({result})")
    line = f"{name}: {only or 'beginning and properties'} (slowest {slowest:.1f} s)"
    return Report(line, number, monotonic() - began, wrong)


def prove_second(name: str, only: str) -> Report:
    """The same with the second solver. A question that it cannot answer in time is no error."""
    report = prove(name, only, second.ask)
    late = [one for one in report.wrong if one.endswith("(unknown)")]
    wrong = [one for one in report.wrong if one not in late]
    line = f"{report.line}, {len(late)} too hard"
    return Report(line, report.questions, report.seconds, wrong, len(late))


def prove_lemmas() -> Report:
    """Proves the lemmas, and that their premises do not contradict one another."""
    began, wrong, number = monotonic(), [], 0
    for question in check.lemma_questions():
        number += 2
        if ask(question.terms).result != "unsat":
            wrong.append(f"lemma: {question.claim}: not proved")
        if ask(question.terms[:-1]).result != "sat":
            wrong.append(f"lemma: {question.claim}: the premises contradict one another")
    return Report("lemmas", number, monotonic() - began, wrong)


def control(position: int) -> Report:
    """Checks that a control fails exactly where it must, and its run."""
    began, it = monotonic(), CONTROLS[position]
    system, wrong = it.broken(), []
    steps = [
        name
        for name in system.transitions
        if system.transitions[name] is not it.system.transitions[name] or system.dropped
    ]
    asked = [question for name in steps for question in check.step_questions(system, name)]
    if system.dropped:
        asked += check.other_questions(system)
    answers = [(question, ask(question.terms, CONTROL_LIMIT, SEEDS[:1])) for question in asked]
    unproved = [
        (question, answer.result) for question, answer in answers if answer.result != "unsat"
    ]
    fails: dict[str, set[str]] = {}
    for question, _ in unproved:
        fails.setdefault(question.of, set()).add(question.claim)
    # One of them must be refuted.
    is_refuted = any(result == "sat" for _, result in unproved) or any(
        ask(question.terms, limit).result == "sat"
        for limit in REFUTING_LIMITS
        for question, _ in unproved
    )
    if not is_refuted:
        wrong.append(f"control {it.name}: nothing is refuted")
    if fails != it.fails:
        wrong.append(f"control {it.name}: fails in {fails}, not in {it.fails}")
    number, stops = len(asked), "no run known"
    if it.run:
        number += 1
        found = search(system, it.run.split(), it.goal, it.sizes)
        if found.run is None:
            wrong.append(f"control {it.name}: no run ({found.result})")
        else:
            wrong += [f"control {it.name}: {one}" for one in repeat(system, found.run, it.goal)]
            # The rules as they are must refuse the same run.
            refused = repeat(it.system, found.run, it.goal)
            wrong += [] if refused else [f"control {it.name}: the rules as they are allow its run"]
            stops = f"a real run, which they stop with {refused[:1]}"
    where = ", ".join(f"{of} / {' '.join(sorted(claims))}" for of, claims in fails.items())
    line = f"control {it.name}: fails {where}; {stops}"
    return Report(line, number, monotonic() - began, wrong)


def run(position: int) -> Report:
    """Checks that a run exists, and that the invariant and the properties hold all along."""
    began, it = monotonic(), RUNS[position]
    found = search(it.system, it.words.split(), it.goal, it.sizes)
    if found.run is None:
        wrong = [f"run {it.name}: none ({found.result})"]
    else:
        failing = [*repeat(it.system, found.run, it.goal), *broken(it.system, found.run)]
        wrong = [f"run {it.name}: {one}" for one in failing]
    return Report(f"run {it.name}", 1, monotonic() - began, wrong)


def unreached() -> list[str]:
    """Returns the transitions that occur in no run, each of which might be impossible."""
    words = {word for it in RUNS for word in it.words.split()}
    return [f"{name} occurs in no run" for name in TRANSITIONS if name not in words]


def jobs(*, is_second: bool) -> list[tuple[Callable[..., Report], tuple[object, ...]]]:
    """Returns what to do, the longest jobs first."""
    parts = [(name, only) for name, it in SYSTEMS.items() for only in ("", *it.transitions)]
    if is_second:
        return [(prove_second, part) for part in parts]
    return [
        *((control, (position,)) for position in range(len(CONTROLS))),
        *((prove, part) for part in parts),
        *((run, (position,)) for position in range(len(RUNS))),
        (prove_lemmas, ()),
    ]
