"""Keyword arguments whose default belongs to another object, so that a signature can show it."""

from typing import Any


class _Inherited:
    """The default of a keyword argument: the value that another object has."""

    __slots__ = ("_source",)

    def __init__(self, source: str) -> None:
        self._source = source

    def __repr__(self) -> str:
        return f"<that of the {self._source}>"


class _Required:
    """The default of a keyword argument that has none, but whose absence raises ConfigError."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<required>"


REQUIRED: Any = _Required()

CLIENT: Any = _Inherited("client")
LOCK: Any = _Inherited("lock")
SEMAPHORE: Any = _Inherited("semaphore")
ENVIRONMENT: Any = _Inherited("environment")


def given(**options: Any) -> dict[str, Any]:
    """Returns the keyword arguments that the caller gave."""
    return {name: value for name, value in options.items() if not isinstance(value, _Inherited)}
