"""Many leases that one process holds at once: memory, and CPU time of renewal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from contender import Process
from figures import ASYNCIO, NODE, RUST
from group import Group
from progress import progress
from scale.settings import LEASES, PATIENCE, REST, STAY, TTL
from scenarios.holding import HOLDERS, resident


def measure() -> list[dict[str, object]]:
    """Measures all sizes in Rust, and one size in the other languages."""
    one = min(10_000, LEASES[-1])
    plan = [(RUST, leases) for leases in LEASES] + [(ASYNCIO, one), (NODE, one)]
    return [_measure(name, leases) for name, leases in plan]


def _measure(name: str, leases: int) -> dict[str, object]:
    progress(f"{leases:,} held leases, {name}")
    with ExitStack() as stack:
        group = Group(stack)
        holder = _start(stack, HOLDERS[name], group)
        idle_client, idle_servers = _cpu(holder, group, REST)
        client_memory, server_memory = resident(holder.pid), _memory(group)
        answer = holder.ask({"hold": leases, "ttl": TTL}, PATIENCE)
        client, servers = _cpu(holder, group, STAY)
        return {
            "name": name,
            "leases": leases,
            "seconds to acquire": answer["seconds"],
            "client bytes": (resident(holder.pid) - client_memory) / leases,
            "server bytes": (_memory(group) - server_memory) / leases,
            "client cpu": (client - idle_client) / leases * 1e6,
            "server cpu": (servers - idle_servers) / leases * 1e6,
        }


def _start(stack: ExitStack, command: Sequence[str], group: Group) -> Process:
    holder = Process([*command, *group.urls], {})
    stack.callback(holder.close)
    holder.ask({}, PATIENCE)
    return holder


def _cpu(holder: Process, group: Group, seconds: float) -> tuple[float, float]:
    """Returns the share of a core that the client and that an average server uses.

    Exits if a lease is lost meanwhile.
    """
    before = group.cpu()
    answer = holder.ask({"rest": seconds}, PATIENCE)
    if not answer["valid"]:
        raise SystemExit("a lease was lost")
    elapsed: float = answer["seconds"]
    servers = (group.cpu() - before) / len(group.meters)
    return answer["cpu"] / elapsed, servers / elapsed


def _memory(group: Group) -> float:
    """Returns the memory of an average server in bytes."""
    return sum(meter.memory() for meter in group.meters) / len(group.meters)
