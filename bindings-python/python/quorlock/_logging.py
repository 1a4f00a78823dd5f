"""Logs the core's events to the loggers `quorlock.acquire`, `.election`, `.lease`, `.node` and
`.waiting`.

This module owns the mapping of levels and records to `logging`. It must not import `logging`: if
the program has not imported it, nobody reads the records. The native `logging` module calls it.
"""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from ._quorlock import records

LEVELS = {1: 40, 2: 30, 3: 20, 4: 10, 5: 5}
"""The levels of `logging`, by the core's levels: error, warn, info, debug, trace."""

_FROM_TRACE = sorted(LEVELS.items(), reverse=True)


def _logging() -> ModuleType | None:
    # If `logging` was not imported, or its import is not finished, there are no handlers.
    logging = sys.modules.get("logging")
    return logging if hasattr(logging, "shutdown") else None


def is_used() -> bool:
    """Returns whether the program has imported `logging`."""
    return _logging() is not None


def forward() -> None:
    """Logs all events that the core has queued."""
    for record in records():
        log(*record)


_loggers: dict[str, Any] = {}
"""The loggers by the core's targets, and the logger `quorlock`. `getLogger` is slow."""


def _logger(logging: ModuleType, target: str) -> Any:
    """Returns the logger for a target of the core."""
    if target not in _loggers:
        _loggers[target] = logging.getLogger(target.replace("::", "."))
    return _loggers[target]


def _prepare(logging: ModuleType) -> None:
    # Without any handler, `logging` would print warnings to stderr.
    package = _logger(logging, "quorlock")
    if not package.handlers:
        package.addHandler(logging.NullHandler())


def levels(targets: Iterable[str]) -> list[int]:
    """Returns the core's level for each target, as the loggers of the program are configured.

    Warnings and errors are always enabled. They are rare, and each one causes the levels to be read
    again, so that a later change of the configuration takes effect.
    """
    logging = _logging()
    if logging is None:
        return [2 for _ in targets]
    _prepare(logging)
    return [_level(_logger(logging, target)) for target in targets]


def _level(logger: Any) -> int:
    # Each operation gets here, so the usual case must be fast.
    if not logger.isEnabledFor(LEVELS[3]):
        return 2
    # Another thread may change the levels meanwhile.
    return next((level for level, number in _FROM_TRACE if logger.isEnabledFor(number)), 2)


def log(
    level: int, target: str, event: str, text: str, time: float, fields: dict[str, object]
) -> None:
    """Logs one event of the core."""
    logging = _logging()
    if logging is None:
        return
    _prepare(logging)
    logger = _logger(logging, target)
    if not logger.isEnabledFor(LEVELS[level]):
        return
    extra = {"event": event, **fields}
    record = logger.makeRecord(
        logger.name, LEVELS[level], "quorlock", 0, text, (), None, event, extra
    )
    # The time of the event, not of this call.
    record.created = time
    record.msecs = time % 1 * 1000
    logger.handle(record)
