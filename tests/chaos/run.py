"""`make chaos`: runs Python, Node.js and Rust clients on real servers under injected faults.

    python tests/chaos/run.py --seconds 300 --seed 7 --out DIRECTORY

Six client processes contend for a few resources and for the permits of a semaphore on five servers,
each behind a proxy. The run alternates between storms of faults and calm periods. In a storm,
servers and clients are killed and stopped, also while they hold or wait, one or many at once;
servers lose their queues and the connections for notifications; connections are cut, refused,
delayed, held in one or both directions, or lose replies. In a calm period there are no faults: each
client must get a lock and a permit, and all acquires that began before must end. At the end all
clients are closed, and must leave no keys, connections or subscriptions, and all permits must be
free.

All events are recorded and then checked; see check.py and waits.py. DIRECTORY gets the histories,
summary.json and timeline.html. The exit status is 1 if there was a violation.

`--serve` has clients in Go and Java that lock through a daemon, `quorlock serve`, beside clients in
Python and Node.js. In a storm, the daemon is killed, stopped, and replaced.

If the machine supports network namespaces, each client runs in one, and faults also drop the
packets that it sends or receives. `--namespaces` turns this off (off), requires it (on), or uses it
if possible (auto).

`--broken` breaks an assumption of the lock, to test that the checker finds the consequences:
`split` gives the clients two disjoint lists of nodes; `no-guard` lets nodes vote directly after a
restart, although they have lost their keys.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import quorlock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from chaos.check import Violation, check
from chaos.clients import KINDS, SERVE_KINDS, Clients, CrashError, build_rust
from chaos.daemon import Daemon
from chaos.faults import LEADER, POOL, RESOURCES, Faults, restarts, storms
from chaos.history import History, Run
from chaos.network import HOST, Network, enter, prepare, why_not
from chaos.register import Register
from chaos.report import excerpt, show, summary
from chaos.timeline import draw
from chaos.waits import Wait, stuck
from nodes import keys
from serve.clients import GO, JAVA
from servers import Server, Servers

NODES = 5
TTL = 1000
"""The ttl and the restart guard, in milliseconds. The guard must not be shorter than the ttl; if
they are equal, violations are most likely."""
SETTINGS: dict[str, Any] = {
    "resources": RESOURCES,
    # The number of loops per process: enough that several wait for the same resource.
    "loops": 5,
    # The semaphore: its limit, the numbers of permits that clients choose from, and the number of
    # loops per process that acquire some. In total, four times as many loops as permits.
    "pool": POOL,
    "limit": 3,
    "permits": [1, 1, 1, 2],
    "permit_loops": 2,
    "pairs": 0.25,
    "cancelled": 0.15,
    # How often a resource is wanted in shared mode, and a holder changes the mode of its lease.
    "sharing": 0.4,
    "changing": 0.2,
    "ttl": TTL,
    "guard": TTL,
    # Long, so that a loaded machine does not cause timeouts.
    "node_timeout": 500,
    # How a lease is renewed: not at all, as long as its process runs, or for this many milliseconds
    # after the acquire, because its holder sends no heartbeat.
    "renewals": [False, False, True, 200],
    # The clients choose from these times in milliseconds at random. Most holders pause briefly
    # ("thinks"); some pause for longer than the ttl.
    "waits": [0, 300, 3000, 10_000, None],
    "thinks": [*[1, 2, 3, 4, 5, 6, 8, 10, 12, 15] * 6, 40, 80, 300, 1400, 2500],
    "pauses": [0, 1, 2, 5, 10, 20],
    "cancels": [0, 1, 5, 50, 500, 2000],
    # How often a holder detaches its lease instead of releasing it, and a client looks for a
    # lease to adopt before it acquires one.
    "detaching": 0.3,
    "adopting": 0.7,
    "withins": [100, 500, TTL],
    "leader": LEADER,
    # How often a leader hands its lease over to another client.
    "handing": 0.4,
}
CONNECT_TIMEOUT = 1000
"""The default `connect_timeout` in milliseconds: an acquire without a quorum fails after it."""
PROGRESS_TIMEOUT = 5 * (
    2 * TTL  # the remaining ttl of killed holders, and the guard of the nodes killed last
    + CONNECT_TIMEOUT
    + len(KINDS) * SETTINGS["loops"] * sum(SETTINGS["thinks"]) / len(SETTINGS["thinks"])
    + 3 * max(SETTINGS["thinks"])  # some long pauses of holders, one after another
) / 1000  # fmt: skip
"""The maximum time, in seconds, until every client has got a lock and a permit in a calm period,
and all earlier acquires have ended. It is five times the time of an unlucky case, to allow for a
loaded machine."""
SLACK = 12.0
"""The maximum time, in seconds, by which a wait may end late. It covers `connect_timeout` in an
outage, the `node_timeout` of the last rounds, and delays on a loaded machine."""
CONNECTIONS_TIMEOUT = 4.0
"""The maximum time, in seconds, until servers notice closed connections. It is less than the 5
seconds after which an open client closes unused subscriptions, so `close` must close them."""
LOST_TIMEOUT = 20.0
"""CONNECTIONS_TIMEOUT for runs that drop packets. If the packet that closes a connection is lost,
the proxy closes the connection after 15 s."""
PERMITS_MARGIN = 2.0
"""The time, in seconds, beyond the ttl within which all permits are free at the end. It covers the
restart guard of a node, and delays on a loaded machine."""
QUEUE_LIFETIME = 6.0
"""The time, in seconds, after which a queue that no waiter joins has expired on a node. It includes
a margin."""


def run(
    seconds: float,
    seed: int,
    folder: Path,
    broken: str | None = None,
    namespaces: bool = False,
    detaching: float | None = None,
    serve: bool = False,
) -> Run:
    """Performs a run and checks it. The histories are written to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.jsonl"), *folder.glob("*.log")]:
        old.unlink()
    with Servers(NODES) as servers, Register(folder / "register.jsonl") as register:
        network = Network(len(KINDS), servers.process_group) if namespaces else None
        host = HOST if namespaces else "127.0.0.1"
        proxies = [servers.proxy(number, host).url for number in range(NODES)]
        urls = [proxies[:2], proxies[2:]] if broken == "split" else [proxies]
        settings = SETTINGS | {"register": register.path}
        if detaching is not None:
            # Enough resources that holders rarely wait for one another.
            names = [*RESOURCES, *(f"resource {number}" for number in range(4, 31))]
            settings |= {"detaching": detaching, "adopting": 1, "resources": names}
        if broken == "split":
            # A client does not adopt a lease of other nodes.
            settings |= {"detaching": 0}
        if broken == "no-guard":
            # Make holders hold the locks nearly all the time, and for longer than a restart takes.
            settings |= {"guard": None, "loops": 2, "pairs": 0, "thinks": [800, 1400], "sharing": 0}
        daemon = Daemon(urls[0], settings, servers.process_group, folder) if serve else None
        settings |= {"socket": daemon.path} if daemon else {}
        kinds = SERVE_KINDS if serve else None
        clients = Clients(urls, settings, servers.process_group, folder, network, kinds)
        faults = Faults(servers, clients, network, daemon)
        result = Run(seed, folder, time.monotonic_ns())
        until = time.monotonic() + seconds
        try:
            calm(result, clients, 0)
            plan = storms(seed, NODES, len(clients), namespaces, serve)
            if broken == "no-guard":
                plan = restarts(seed, NODES)
            for storm in plan:
                faults.run_storm(storm)
                calm(result, clients, storm.calm)
                if time.monotonic() > until:
                    break
            clients.close()
            if daemon:
                daemon.close()
                result.violations += daemon.violations
            # Checked while the processes still run: their exit would close all connections.
            timeout = LOST_TIMEOUT if namespaces else CONNECTIONS_TIMEOUT
            check_connections(result, servers, timeout)
            clients.end()
            check_permits(result, servers)
            check_leftover_keys(result, servers)
        except CrashError:
            clients.kill()  # the crash is recorded as a violation; the run cannot continue
        result.ended = time.monotonic_ns()
        result.injected = faults.injected
        result.violations += clients.violations
        result.histories = [(client.name, client.entries) for client in clients]
    result.register = History(folder / "register.jsonl").load()
    result.violations += check(
        result.histories, result.register, TTL * 1_000_000, SETTINGS["limit"]
    )
    result.violations += stuck(result.waits, int(SLACK * 1e9))
    return result


def calm(result: Run, clients: Clients, seconds: float) -> None:
    """Waits without faults until each client has got a lock and a permit, and all earlier acquires
    have ended.

    After PROGRESS_TIMEOUT, stops waiting and records violations. At the end, waits without faults
    for `seconds` more.
    """
    began = time.monotonic_ns()

    def without_lock() -> list[str]:
        return [client.name for client in clients if not client.granted_since(began)]

    def waiting() -> list[Wait]:
        in_progress = (wait for client in clients for wait in client.waits_in_progress)
        return [wait for wait in in_progress if wait.asked < began]

    deadline = time.monotonic() + PROGRESS_TIMEOUT
    while (without_lock() or waiting()) and time.monotonic() < deadline:
        clients.watch(time.monotonic() + 0.02)
    now = time.monotonic_ns()
    limit = f"within {PROGRESS_TIMEOUT:g} s without faults"
    if names := without_lock():
        text = f"no lock or no permit for {', '.join(names)} {limit}"
        result.violations.append(Violation("no progress", now, text))
    result.violations += [
        Violation("stuck", now, f"{wait} has not ended {limit}") for wait in waiting()
    ]
    clients.watch(time.monotonic() + seconds)
    result.calms.append((began, time.monotonic_ns()))


def check_permits(result: Run, servers: Servers) -> None:
    """Checks that all permits can be acquired together within one ttl, after all clients have
    exited. Killed clients leave theirs, which must expire."""
    limit, ttl = SETTINGS["limit"], TTL / 1000
    wait = ttl + PERMITS_MARGIN
    with quorlock.Client(servers.urls, ttl=ttl, restart_guard=ttl) as client:
        try:
            client.semaphore(POOL, limit=limit, permits=limit, wait=wait).acquire().release()
        except quorlock.QuorlockError as error:
            text = f"the {limit} permits are not free {wait:g} s after the end: {error}"
            result.violations.append(Violation("lost permit", time.monotonic_ns(), text))


def check_leftover_keys(result: Run, servers: Servers) -> None:
    """Checks that no key is left after all clients have exited. Killed clients leave keys and queue
    entries, which must expire."""
    deadline = time.monotonic() + TTL / 1000 + QUEUE_LIFETIME
    while keys(servers) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = [f"{key} is left on a node" for key in keys(servers)]
    for server, resource in product(servers, [*RESOURCES, LEADER]):
        if server.command("PTTL", f"{{{resource}}}:fence") == -1:
            left.append(f"the fence key of {resource} does not expire on a node")
    for server, slot in product(servers, range(SETTINGS["limit"])):
        if server.command("PTTL", f"{{{POOL}}}:permit:{slot}:fence") == -1:
            left.append(f"the fence key of permit {slot} does not expire on a node")
    result.violations += [Violation("leftover key", time.monotonic_ns(), text) for text in left]


def check_connections(result: Run, servers: Servers, timeout: float) -> None:
    """Checks that closed clients have no subscriptions and no connections after the timeout."""

    def left() -> list[str]:
        found = []
        for number, server in enumerate(servers, 1):
            channels, connected = server.command("PUBSUB", "CHANNELS"), others(server)
            if channels:
                found.append(f"node {number} has subscribers of {channels}")
            if connected:
                found.append(f"{connected} clients are still connected to node {number}")
        return found

    deadline = time.monotonic() + timeout
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    result.violations += [Violation("connection", time.monotonic_ns(), text) for text in left()]


def others(server: Server) -> int:
    """Returns the number of connections to the server, without the connection of this request."""
    listed = str(server.command("CLIENT", "LIST")).splitlines()
    return sum("cmd=client" not in line for line in listed)


def report(result: Run) -> bool:
    """Writes summary.json and timeline.html, and prints the figures and the first violations.

    Returns whether there were no violations.
    """
    figures = summary(result)
    (result.folder / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    timeline = result.folder / "timeline.html"
    timeline.write_text(draw(result, figures))
    show(figures)
    for violation in result.violations[:3]:
        print(f"\n{violation.kind}: {violation.text}\n{excerpt(result, violation)}")
    print(f"\nTimeline of leases and faults: {timeline}")
    return not result.violations


def main(arguments: Sequence[str]) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    parser.add_argument(
        "--detaching",
        type=float,
        help="the share of the leases that their holders hand over, with 30 resources",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="with clients in Go and Java that lock through `quorlock serve`",
    )
    parser.add_argument("--broken", choices=["split", "no-guard"])
    parser.add_argument("--namespaces", choices=["on", "off", "auto"], default="auto")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        GO.install()
        JAVA.install()
    if options.inside:
        prepare()
    else:
        is_off = options.namespaces == "off" or options.serve
        reason = "turned off" if is_off else why_not()
        if reason and options.namespaces == "on":
            raise SystemExit(f"no network namespaces: {reason}")
        print(f"seed {options.seed}, {options.seconds:g} s; the seed repeats the faults")
        print(f"network namespaces: {reason or 'one for each client'}", flush=True)
        if not reason:
            build_rust()  # before `enter`: cargo may need the network
            again = [*arguments, f"--seed={options.seed}", "--inside"]
            enter([sys.executable, str(Path(__file__).resolve()), *again])
    result = run(
        options.seconds,
        options.seed,
        options.out,
        options.broken,
        options.inside,
        options.detaching,
        options.serve,
    )
    if report(result):
        print("No violations.")
        return 0
    print("VIOLATIONS FOUND: the lock or a client failed.")
    return 1


def end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
