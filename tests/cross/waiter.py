"""Waits for the lock, then appends the name of this process to a file. See test_turns.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import quorlock


def main() -> None:
    settings = json.loads(sys.argv[1])
    seconds = settings["seconds"]
    options = {"ttl": seconds, "wait": seconds, "retry_delay": (seconds, seconds)}
    with quorlock.Client(settings["urls"], **options) as client:
        with client.lock("r"), Path(settings["order"]).open("a") as file:
            file.write(f"{settings['name']}\n")


if __name__ == "__main__":
    main()
