"""The Python examples pass mypy, with the types of their frameworks if these have any.

The types of the NestJS example are checked when it is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from examples.installing import EXAMPLES, PYTHON, ROOT

OPTIONS = [
    "--config-file=",
    "--strict",
    "--explicit-package-bases",
    # Celery, APScheduler and Django have no types of their own.
    "--ignore-missing-imports",
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
]


@pytest.mark.parametrize(
    "directory",
    [
        "apscheduler",
        "celery",
        "cron",
        "django",
        "fastapi",
        "hand-over",
        "leader-election",
        "once",
        "semaphores",
        "worker",
    ],
)
@pytest.mark.usefixtures("frameworks")
def test_the_types_of_an_example_are_correct(directory: str) -> None:
    # Each example is checked separately, because examples have modules with the same names.
    mypy = [sys.executable, "-m", "mypy", *OPTIONS, "."]
    mypy += [f"--python-executable={PYTHON.program[0]}"]
    mypy += [f"--cache-dir={ROOT / '.mypy_cache' / 'examples' / directory}"]
    paths = {"MYPYPATH": str(ROOT / "bindings-python" / "python")}
    done = subprocess.run(
        mypy, cwd=EXAMPLES / directory, env=os.environ | paths, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
