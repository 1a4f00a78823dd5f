"""Runs a Python program that may use `await` at its top level, as those in the documentation."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from types import FunctionType


def main(path: str) -> None:
    code = compile(Path(path).read_text(), path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    # Run in the main module, so that objects of the program can be unpickled.
    program = FunctionType(code, vars(sys.modules["__main__"]))
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(program())
    else:
        program()


if __name__ == "__main__":
    main(sys.argv[1])
