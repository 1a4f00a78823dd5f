"""What it costs to hold leases: CPU of the holder and of the servers, and the servers' requests."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from servers import Servers  # noqa: E402

import quorlock  # noqa: E402

NODES = 5
HOLD = float(os.environ.get("HOLD", "30"))


@dataclass
class Usage:
    """What has been used so far: seconds of CPU, and requests (scripts run) at one node."""

    client: float
    servers: float
    requests: int

    @classmethod
    def now(cls, servers: Servers) -> Usage:
        own = resource.getrusage(resource.RUSAGE_SELF)
        stats = [info(server.command("INFO", "everything")) for server in servers]
        cpu = sum(float(s["used_cpu_user"]) + float(s["used_cpu_sys"]) for s in stats)
        scripts = stats[0].get("cmdstat_evalsha", "calls=0,").removeprefix("calls=")
        return cls(own.ru_utime + own.ru_stime, cpu, int(scripts.partition(",")[0]))


def info(reply: Any) -> dict[str, str]:
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


async def hold(servers: Servers, count: int, ttl: float, seconds: float) -> dict[str, float]:
    """Holds so many leases for so long, and does nothing else."""
    async with quorlock.Client(servers.urls, ttl=ttl) as client:
        locks = [client.lock(f"held-{number}").acquire_async() for number in range(count)]
        leases = await asyncio.gather(*locks)
        before, began = Usage.now(servers), time.monotonic()
        await asyncio.sleep(seconds)
        held = time.monotonic() - began
        if not all(lease.valid for lease in leases):
            raise SystemExit("a lease was lost")
        after = Usage.now(servers)
    return {
        "leases": count,
        "ttl": ttl,
        "held": held,
        "requests per node": after.requests - before.requests,
        "one by one": count * held / (ttl / 3),
        "client cpu ms/s": (after.client - before.client) / held * 1e3,
        "server cpu ms/s": (after.servers - before.servers) / held * 1e3 / NODES,
    }


def main() -> None:
    results = []
    print(
        f"Held leases, N = {NODES}; CPU in milliseconds per second, of the client and a server.\n"
    )
    print("| leases | ttl | held | requests per node | one by one | client | server |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for count, ttl, seconds in [(1, 0.05, 2.0), (1, 10.0, HOLD), (1000, 10.0, HOLD)]:
        with Servers(NODES) as servers:
            row = asyncio.run(hold(servers, count, ttl, seconds))
        results.append(row)
        print(
            f"| {count} | {ttl:g} s | {row['held']:.1f} s | {row['requests per node']:.0f}"
            f" | {row['one by one']:.0f} | {row['client cpu ms/s']:.2f}"
            f" | {row['server cpu ms/s']:.2f} |",
            flush=True,
        )
    (HERE / "held.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
