"""Contenders from PyPI: `peer.py NAME URL...`. ../README.md describes the protocol."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "clients"))

import awaited
import blocking
from serving import serve, serve_async


async def run_awaited(name: str, urls: list[str]) -> None:
    await serve_async(name, awaited.LIBRARIES[name](urls))


def main() -> None:
    _, name, *urls = sys.argv
    logging.disable()  # libraries log tracebacks about frozen nodes
    if name in awaited.LIBRARIES:
        asyncio.run(run_awaited(name, urls))
    elif name in blocking.LOCKS:
        serve(name, blocking.cycles(blocking.LOCKS[name](urls)))
    else:
        serve(name, blocking.CYCLES[name](urls))


if __name__ == "__main__":
    main()
    os._exit(0)  # do not wait for threads that wait for a frozen node
