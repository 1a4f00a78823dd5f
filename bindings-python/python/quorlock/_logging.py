"""The core's events for `logging`: loggers `quorlock.acquire`, `.lease`, `.node` and `.waiting`."""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from ._quorlock import records

LEVELS = {1: 40, 2: 30, 3: 20, 4: 10, 5: 5}
"""Those of `logging`, by how much is to be heard: errors, warnings, what is of interest, details,
everything."""


def _logging() -> ModuleType | None:
    # Where `logging` was not imported, or not to its end, nobody listens.
    logging = sys.modules.get("logging")
    return logging if hasattr(logging, "shutdown") else None


def is_used() -> bool:
    """Whether there is anybody to hand events on to."""
    return _logging() is not None


def hand_on() -> None:
    """Hands on what the core has to tell."""
    for record in records():
        log(*record)


def _logger(logging: ModuleType, name: str) -> Any:
    """The logger of this name. Without any handler `logging` itself would print warnings."""
    library = logging.getLogger("quorlock")
    if not library.handlers:
        library.addHandler(logging.NullHandler())
    return logging.getLogger(name)


def levels(targets: Iterable[str]) -> list[int]:
    """How much is to be heard of each of these.

    Warnings always are: they are rare, and whoever begins to listen now has them looked up anew.
    """
    logging = _logging()
    if logging is None:
        return [2 for _ in targets]
    return [max(2, _level(_logger(logging, target.replace("::", ".")))) for target in targets]


def _level(logger: Any) -> int:
    heard = (level for level, number in LEVELS.items() if logger.isEnabledFor(number))
    return max(heard, default=0)


def log(
    level: int, target: str, event: str, text: str, time: float, fields: dict[str, object]
) -> None:
    """Hands an event of the core on to `logging`."""
    logging = _logging()
    if logging is None:
        return
    logger = _logger(logging, target.replace("::", "."))
    if not logger.isEnabledFor(LEVELS[level]):
        return
    extra = {"event": event, **fields}
    record = logger.makeRecord(
        logger.name, LEVELS[level], "quorlock", 0, text, (), None, event, extra
    )
    # When it happened, not when it is told.
    record.created = time
    record.msecs = time % 1 * 1000
    logger.handle(record)
