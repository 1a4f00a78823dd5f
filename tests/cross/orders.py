"""Locks several resources repeatedly, and increments a counter for each. See test_orders.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import quorlock


def main() -> None:
    settings = json.loads(sys.argv[1])
    folder, resources = Path(settings["folder"]), settings["resources"]
    with quorlock.Client(settings["urls"], ttl=60, wait=settings["wait"]) as client:
        lock = client.lock(*resources)
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(settings["turns"]):
            with lock as lease:
                files = {folder / resource: fence for resource, fence in lease.fences.items()}
                seen = {file: json.loads(file.read_text()) for file in files}
                time.sleep(0)
                for file, fence in files.items():
                    assert fence > seen[file]["fence"], (file.name, fence, seen[file])
                    file.write_text(json.dumps({"count": seen[file]["count"] + 1, "fence": fence}))


if __name__ == "__main__":
    main()
