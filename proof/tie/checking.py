"""Checks one file of steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proof.tie import steps, trace
from proof.tie.conjuncts import Observer
from proof.tie.replay import Refused, Replay


@dataclass(frozen=True)
class Result:
    """What the check of one run found."""

    name: str
    steps: int
    transitions: int
    evaluations: int
    error: str
    """Empty if the run is one of the proof."""


def check(path: Path) -> Result:
    """Checks a run. It ends at the first step that the proof does not allow."""
    world = trace.read(path)
    replay = Replay(world)
    observer, performed = Observer(replay), 0
    replay.observer = observer
    error = ""
    try:
        for step in world.steps:
            performed += 1
            try:
                steps.perform(replay, step)
            except Refused as refused:
                raise Refused(f"{_describe(world.name, step)}: {refused}") from None
        observer.far(replay)
    except Refused as refused:
        error = str(refused)
    return Result(world.name, performed, replay.transitions, observer.evaluated, error)


def _describe(name: str, step: trace.Step) -> str:
    who = "" if step.client is None else f" of client {step.client}"
    details = ", ".join(str(each) for each in step.details)
    shown = details if len(details) < 200 else details[:200] + "…"
    return f"{name}, line {step.line}, at {step.time / 1e6:.3f} ms: {step.what}{who} ({shown})"
