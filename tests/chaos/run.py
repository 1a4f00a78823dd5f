"""`make chaos`: real servers, and Python, Node.js and Rust clients side by side, under faults.

    python tests/chaos/run.py --seconds 300 --seed 7 --out DIRECTORY

Five servers, each behind a proxy, six client processes that fight and wait for a few resources,
and storms of faults: servers and clients are killed and stopped, holding, waiting and in crowds;
queues are lost, and the connections on which waiters are called; connections are cut, refused,
delayed, held in one or both directions, and robbed of replies. Between the storms all is well,
everybody has to get a lock, and whoever waits has to be done with it. In the end all clients are
closed, and must leave neither keys nor connections nor subscriptions. All that happens is written
down, and then checked: see check.py and waits.py. In DIRECTORY there are afterwards all histories,
summary.json and timeline.html. Exit status 1 if anything was amiss.

Where the machine allows network namespaces, each client is in one, and what it sends or is sent to
it is lost at times. `--namespaces` says whether to try that, or to insist on it.

`--broken` breaks an assumption of the lock, to see that the checker finds what comes of it:
`split` gives the clients two lists of nodes that have none in common, `no-guard` lets nodes vote at
once after a restart, though they have forgotten everything.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from chaos.check import Violation, check
from chaos.clients import KINDS, Clients, CrashError, build_rust
from chaos.faults import RESOURCES, Faults, restarts, storms
from chaos.history import History, Run
from chaos.network import HOST, Network, enter, prepare, why_not
from chaos.register import Register
from chaos.report import excerpt, show, summary
from chaos.timeline import draw
from chaos.waits import Wait, stuck
from nodes import keys
from servers import Server, Servers

NODES = 5
TTL = 1000
"""Milliseconds, also of the guard: it must not be shorter, and is most likely to fail if equal."""
SETTINGS: dict[str, Any] = {
    "resources": RESOURCES,
    # So many per process that several wait for the same.
    "loops": 5,
    "pairs": 0.25,
    "cancelled": 0.15,
    "ttl": TTL,
    "guard": TTL,
    # A machine that is busy with other things is no fault.
    "node_timeout": 500,
    # Milliseconds, of which the clients choose at random. Most turns are short; some holders
    # think for longer than a lease lasts that is not extended.
    "waits": [0, 300, 3000, 10_000, None],
    "thinks": [*[1, 2, 3, 4, 5, 6, 8, 10, 12, 15] * 6, 40, 80, 300, 1400, 2500],
    "pauses": [0, 1, 2, 5, 10, 20],
    "cancels": [0, 1, 5, 50, 500, 2000],
}
CONNECT_TIMEOUT = 1000
"""Milliseconds, the default: for how long too few nodes are put up with."""
PROGRESS_TIMEOUT = 5 * (
    2 * TTL  # what killed holders have left, and the guard of nodes that were killed last
    + CONNECT_TIMEOUT
    + len(KINDS) * SETTINGS["loops"] * sum(SETTINGS["thinks"]) / len(SETTINGS["thinks"])
    + 3 * max(SETTINGS["thinks"])  # some that think for long, one after the other
) / 1000  # fmt: skip
"""Seconds in which every client has to get a lock when all is well, and everybody who waits is done
with it: five times as long as it takes with bad luck, for a machine that is busy."""
SLACK = 12.0
"""Seconds by which a wait may end late: `connect_timeout` for an outage, the `node_timeout` of the
last rounds, and the rest for a machine that is busy."""
CONNECTIONS_TIMEOUT = 4.0
"""Seconds until servers have seen that connections have ended; those that call waiters are closed
after 5 s without waiters in any case."""
LOST_TIMEOUT = 20.0
"""The same where the packet that tells of an end may have been lost: the proxies find out by
themselves, in 15 s."""
QUEUE_MEMORY = 6.0
"""Seconds after which a node has forgotten a queue that nobody joins, and a bit."""


def run(
    seconds: float, seed: int, folder: Path, broken: str | None = None, namespaces: bool = False
) -> Run:
    """A whole run, which leaves its histories in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.jsonl"), *folder.glob("*.log")]:
        old.unlink()
    with Servers(NODES) as servers, Register(folder / "register.jsonl") as register:
        network = Network(len(KINDS), servers.process_group) if namespaces else None
        host = HOST if namespaces else "127.0.0.1"
        proxies = [servers.proxy(number, host).url for number in range(NODES)]
        urls = [proxies[:2], proxies[2:]] if broken == "split" else [proxies]
        settings = SETTINGS | {"register": register.path}
        if broken == "no-guard":
            # The locks are held nearly all the time, and for longer than a node needs to restart.
            settings |= {"guard": None, "loops": 2, "pairs": 0, "thinks": [800, 1400]}
        clients = Clients(urls, settings, servers.process_group, folder, network)
        faults = Faults(servers, clients, network)
        happened = Run(seed, folder, time.monotonic_ns())
        until = time.monotonic() + seconds
        try:
            calm(happened, clients, 0)
            plan = storms(seed, NODES, len(clients), namespaces)
            if broken == "no-guard":
                plan = restarts(seed, NODES)
            for storm in plan:
                faults.storm(storm)
                calm(happened, clients, storm.calm)
                if time.monotonic() > until:
                    break
            clients.close()
            # The processes are still there, so these are not closed by their ends.
            patience = LOST_TIMEOUT if namespaces else CONNECTIONS_TIMEOUT
            check_connections(happened, servers, patience)
            clients.end()
            check_litter(happened, servers)
        except CrashError:
            clients.kill()  # a violation, which leaves nothing to go on with
        happened.ended = time.monotonic_ns()
        happened.strokes = faults.strokes
        happened.violations += clients.violations
        happened.histories = [(client.name, client.entries) for client in clients]
    happened.register = History(folder / "register.jsonl").load()
    happened.violations += check(happened.histories, happened.register, TTL * 1_000_000)
    happened.violations += stuck(happened.waits, int(SLACK * 1e9))
    return happened


def calm(happened: Run, clients: Clients, seconds: float) -> None:
    """All is well for at least so long, and until everybody has got a lock.

    Also until all who waited when it began have got what they waited for, or have ended otherwise.
    """
    began = time.monotonic_ns()

    def without_lock() -> list[str]:
        return [client.name for client in clients if not client.granted_since(began)]

    def waiting() -> list[Wait]:
        return [wait for client in clients for wait in client.under_way if wait.asked < began]

    deadline = time.monotonic() + PROGRESS_TIMEOUT
    while (without_lock() or waiting()) and time.monotonic() < deadline:
        clients.watch(time.monotonic() + 0.02)
    now = time.monotonic_ns()
    much = f"in {PROGRESS_TIMEOUT:g} s, though all is well"
    if names := without_lock():
        text = f"no lock for {', '.join(names)} {much}"
        happened.violations.append(Violation("no progress", now, text))
    happened.violations += [
        Violation("stuck", now, f"{wait} has not ended {much}") for wait in waiting()
    ]
    clients.watch(time.monotonic() + seconds)
    happened.calms.append((began, time.monotonic_ns()))


def check_litter(happened: Run, servers: Servers) -> None:
    """All clients have ended; what the killed ones left is gone when the ttl is over."""
    # The same for the places of the last waiters in queues.
    deadline = time.monotonic() + TTL / 1000 + QUEUE_MEMORY
    while keys(servers) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = [f"{key} stays on a node" for key in keys(servers)]
    for server, resource in product(servers, RESOURCES):
        if server.command("PTTL", f"{resource}:fence") == -1:
            left.append(f"the fence of {resource} stays on a node for ever")
    happened.violations += [Violation("litter", time.monotonic_ns(), text) for text in left]


def check_connections(happened: Run, servers: Servers, patience: float) -> None:
    """All clients are closed: there are no subscriptions any more, and nobody is connected."""

    def left() -> list[str]:
        found = []
        for number, server in enumerate(servers, 1):
            channels, connected = server.command("PUBSUB", "CHANNELS"), others(server)
            if channels:
                found.append(f"node {number} has subscribers of {channels}")
            if connected:
                found.append(f"{connected} clients are still connected to node {number}")
        return found

    deadline = time.monotonic() + patience
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    happened.violations += [Violation("connection", time.monotonic_ns(), text) for text in left()]


def others(server: Server) -> int:
    """How many are connected with a server, but for who asks."""
    listed = str(server.command("CLIENT", "LIST")).splitlines()
    return sum("cmd=client" not in line for line in listed)


def report(happened: Run) -> bool:
    """Writes summary.json and timeline.html, and prints what a person wants to know."""
    figures = summary(happened)
    (happened.folder / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    timeline = happened.folder / "timeline.html"
    timeline.write_text(draw(happened, figures))
    show(figures)
    for violation in happened.violations[:3]:
        print(f"\n{violation.kind}: {violation.text}\n{excerpt(happened, violation)}")
    print(f"\nWho held what, and which faults there were: {timeline}")
    return not happened.violations


def main(arguments: Sequence[str]) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    parser.add_argument("--broken", choices=["split", "no-guard"])
    parser.add_argument("--namespaces", choices=["on", "off", "auto"], default="auto")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        prepare()
    else:
        reason = "not wanted" if options.namespaces == "off" else why_not()
        if reason and options.namespaces == "on":
            raise SystemExit(f"no network namespaces: {reason}")
        print(f"seed {options.seed}, {options.seconds:g} s; the seed repeats the faults")
        print(f"network namespaces: {reason or 'each client in one of its own'}", flush=True)
        if not reason:
            build_rust()  # while there is a network, from which cargo may need something
            again = [*arguments, f"--seed={options.seed}", "--inside"]
            enter([sys.executable, str(Path(__file__).resolve()), *again])
    happened = run(options.seconds, options.seed, options.out, options.broken, options.inside)
    if report(happened):
        print("All is well.")
        return 0
    print("THE LOCK FAILED, or a client did.")
    return 1


def end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
