"""The jobs of a check. Each runs in a new process, so its result does not depend on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from time import monotonic

from proof import check, second
from proof.control import Control
from proof.controls import CONTROLS
from proof.counting import count_questions
from proof.report import Report
from proof.runs import RUNS
from proof.search import broken, repeat, search
from proof.solving import SEEDS, ask
from proof.systems import SYSTEMS
from proof.transitions import TRANSITIONS

TOGETHER = 8
"""So many claims about a control are asked at once. That takes less time than one after the other,
or than all at once."""

TOGETHER_LIMIT = 6
"""The limit of a question that stands for several, as in `solving.py`. Beyond it, each of them is
asked alone."""

FEW = {
    "Node": 2,
    "Client": 2,
    "Attempt": 3,
    "Extension": 2,
    "Resource": 1,
    "Semaphore": 1,
    "Nodes": 2,
}
"""How many things there are where a claim that a control breaks is refuted. What fails there also
fails with any number of things, and the solver finds it at once."""


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


def prove_counts() -> Report:
    """Proves that small numbers of permits are at most the limit."""
    began, wrong, number = monotonic(), [], 0
    for question in count_questions():
        number += 1
        if ask(question.terms).result != "unsat":
            wrong.append(f"permits: {question.claim}: not proved")
    return Report("permits are at most the limit", number, monotonic() - began, wrong)


def differences(it: Control, asked: Callable[..., Iterable[check.Question]]) -> list[str]:
    """Returns where a control does not fail exactly as it must: each claim that it must break is
    refuted, with few things, and all others are proved, with any number of them."""

    def must_fail(question: check.Question) -> bool:
        return question.claim in it.fails.get(question.of, ())

    wrong = [
        f"{question.of} / {question.claim}: not refuted ({result})"
        for question in asked(sizes={**FEW, **it.sizes})
        if must_fail(question) and (result := ask(question.terms).result) != "sat"
    ]
    others = [question for question in asked() if not must_fail(question)]
    for _, group in groupby(others, lambda question: question.of):
        alike = list(group)
        for first in range(0, len(alike), TOGETHER):
            some = alike[first : first + TOGETHER]
            if ask(check.together(some), TOGETHER_LIMIT, SEEDS[:1]).result == "unsat":
                continue
            wrong += [
                f"{question.of} / {question.claim}: not proved ({result})"
                for question in some
                if (result := ask(question.terms).result) != "unsat"
            ]
    return wrong


def control(position: int) -> Report:
    """Checks that a control fails exactly where it must, and its run."""
    began, it = monotonic(), CONTROLS[position]
    system = it.broken()
    asked = [
        partial(check.step_questions, system, name)
        for name in system.transitions
        if system.transitions[name] is not it.system.transitions[name] or system.dropped
    ]
    asked += [partial(check.other_questions, system)] if system.dropped else []
    claims = {(question.of, question.claim) for one in asked for question in one()}
    wrong = [f"control {it.name}: {one}" for each in asked for one in differences(it, each)]
    must = {(of, claim) for of, broken in it.fails.items() for claim in broken}
    if not must or must - claims:
        wrong.append(f"control {it.name}: no claims that it can break: {must - claims}")
    number, stops = len(claims), "no run known"
    if it.run:
        number += 1
        sought = search(system, it.run.split(), it.goal, it.sizes)
        if sought.run is None:
            wrong.append(f"control {it.name}: no run ({sought.result})")
        else:
            wrong += [f"control {it.name}: {one}" for one in repeat(system, sought.run, it.goal)]
            # The rules as they are must refuse the same run.
            refused = repeat(it.system, sought.run, it.goal)
            wrong += [] if refused else [f"control {it.name}: the rules as they are allow its run"]
            stops = f"a real run, which they stop with {refused[:1]}"
    where = ", ".join(f"{of} / {' '.join(sorted(claims))}" for of, claims in it.fails.items())
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
        (prove_counts, ()),
    ]
