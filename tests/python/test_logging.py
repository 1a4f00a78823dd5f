"""The events that quorlock logs through `logging`."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from docs.blocks import ROOT
from nodes import steal
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

Records = list[logging.LogRecord]


class Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=0)
        self.records: Records = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[Records]:
    """All records that are logged during the test."""
    logger, handler = logging.getLogger("quorlock"), Recorder()
    logger.addHandler(handler)
    logger.setLevel(5)
    yield handler.records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def of(records: Records, event: str, **extra: object) -> Records:
    """Returns the records of this event that have these fields."""
    return [r for r in list(records) if vars(r).items() >= {"event": event, **extra}.items()]


def visible(records: Records) -> list[str]:
    """Returns the messages at INFO or above."""
    return [r.getMessage() for r in list(records) if r.levelno >= logging.INFO]


def test_an_outage_of_a_node_is_logged_with_its_reason_and_its_length(
    start_servers: Callable[..., Servers], records: Records
) -> None:
    servers = start_servers(3)
    with quorlock.Client(servers.urls) as client:
        client.lock("r").acquire().release()
        servers[0].kill()
        wait_until(lambda: bool(of(records, "node.down")))
        servers[0].restart()
        wait_until(lambda: bool(of(records, "node.up")))
    [down, up] = [*of(records, "node.down"), *of(records, "node.up")]
    assert (down.name, down.levelname, up.levelname) == ("quorlock.node", "WARNING", "INFO")
    assert vars(down).items() >= {"node": servers.urls[0], "outcome": "unreachable"}.items()
    # The system may still accept a connection while it ends the server's process.
    assert re.search("Connection re(fused|set)|end of file", vars(down)["detail"])
    assert servers.urls[0] in down.getMessage()
    assert vars(up)["seconds"] > 0


def test_a_lost_lease_is_a_warning(start_servers: Callable[..., Servers], records: Records) -> None:
    servers = start_servers(3)
    with quorlock.Client(servers.urls, ttl=3) as client:
        lease = client.lock("r").acquire()
        steal(servers, "r")
        assert lease.wait_lost(TIMEOUT)
        wait_until(lambda: bool(of(records, "lease.lost")))
        assert not lease.release()
        assert client.stats().losses == 1
        assert client.stats().releases == client.stats().held == 0
    [lost] = of(records, "lease.lost", resource="r", outcome="taken", fence=lease.fence)
    assert (lost.name, lost.levelname) == ("quorlock.lease", "WARNING")
    assert len(visible(records)) == 1


def test_leases_ended_by_closing_the_client_are_logged_as_info(
    start_servers: Callable[..., Servers], records: Records
) -> None:
    with quorlock.Client(start_servers(1).urls) as client:
        lease = client.lock("r").acquire()
    assert not lease.valid
    wait_until(lambda: bool(of(records, "lease.lost", outcome="closed", levelname="INFO")))
    assert len(visible(records)) == 1


def test_duplicate_nodes_are_logged_as_an_error(
    start_servers: Callable[..., Servers], records: Records
) -> None:
    url = start_servers(1).urls[0]
    urls = [url, url.replace("127.0.0.1", "localhost")]
    with quorlock.Client(urls) as client, pytest.raises(quorlock.ConfigError):
        client.lock("r").acquire()
    wait_until(lambda: bool(of(records, "node.duplicate")))
    [duplicate] = of(records, "node.duplicate")
    assert duplicate.levelname == "ERROR"
    assert {vars(duplicate)["node"], vars(duplicate)["other"]} == set(urls)


def test_a_guarded_node_is_logged_once(
    start_servers: Callable[..., Servers], records: Records
) -> None:
    [url] = start_servers(1).urls
    with quorlock.Client([url], ttl=1, restart_guard=1) as client:
        with pytest.raises(quorlock.QuorumError):
            client.lock("r", wait=0).acquire()

        def counts() -> bool:
            try:
                return client.lock("r", wait=0).acquire().release()
            except quorlock.QuorumError:
                return False

        wait_until(counts)
        wait_until(lambda: bool(of(records, "node.counts", node=url)))
        assert len(of(records, "node.guarded", node=url, levelname="WARNING")) == 1


def test_a_node_that_refuses_is_logged_once(
    start_servers: Callable[..., Servers], records: Records
) -> None:
    servers = start_servers(1)
    servers[0].command("CONFIG", "SET", "min-replicas-to-write", "1")
    with quorlock.Client(servers.urls) as client:
        for _ in range(3):
            with pytest.raises(quorlock.QuorumError):
                client.lock("r", wait=0).acquire()
        wait_until(lambda: bool(of(records, "node.refused", outcome="refused")))
        wait_until(lambda: len(of(records, "acquire.failed", outcome="no_quorum")) == 3)
        assert len(of(records, "node.refused")) == 1


def test_no_record_has_a_password_or_a_token(
    start_servers: Callable[..., Servers], records: Records
) -> None:
    servers = start_servers(2, password="s3cr3t")
    assert "s3cr3t" in servers.urls[0]
    wrong = servers.urls[1].replace("s3cr3t", "wr0ng")
    with quorlock.Client([servers.urls[0], wrong], ttl=0.3, wait=0) as client:
        with pytest.raises(quorlock.QuorumError):
            client.lock("r").acquire()
    with quorlock.Client(servers.urls, ttl=3) as client:
        lease = client.lock("r").acquire()
        wait_until(lambda: bool(of(records, "lease.extended")))
        servers[0].kill()
        servers[1].kill()
        assert lease.wait_lost(TIMEOUT)
        wait_until(lambda: len(of(records, "lease.lost")) == 1)
    logged = repr([vars(record) for record in records])
    assert all(url.split("@")[1] in logged for url in servers.urls)
    assert not any(secret in logged for secret in ["s3cr3t", "wr0ng", lease.token[:9]])


def test_a_resource_cannot_forge_a_record(records: Records) -> None:
    with quorlock.Client(["memory://forge"]) as client:
        client.lock("r\nERROR forged").acquire().release()
    wait_until(lambda: bool(of(records, "lease.acquired", resource="r ERROR forged")))
    assert not any("\n" in record.getMessage() for record in records)


def test_records_below_the_level_of_their_logger_are_not_logged(records: Records) -> None:
    logging.getLogger("quorlock").setLevel(logging.WARNING)
    logging.getLogger("quorlock.lease").setLevel(logging.DEBUG)
    try:
        with quorlock.Client(["memory://quiet"]) as client:
            client.lock("r").acquire().release()
            wait_until(lambda: bool(of(records, "lease.released")))
    finally:
        logging.getLogger("quorlock.lease").setLevel(logging.NOTSET)
    assert {record.name for record in records} == {"quorlock.lease"}


def test_a_changed_level_takes_effect(records: Records) -> None:
    logging.getLogger("quorlock").setLevel(logging.WARNING)
    with quorlock.Client(["memory://changed"]) as client:
        client.lock("r").acquire().release()
        assert records == []
        logging.getLogger("quorlock").setLevel(logging.DEBUG)

        def is_logged() -> bool:
            client.lock("r").acquire().release()
            return bool(of(records, "lease.acquired"))

        wait_until(is_logged)


def test_the_events_of_a_block_are_logged_when_it_is_left(
    start_servers: Callable[..., Servers], caplog: pytest.LogCaptureFixture
) -> None:
    with quorlock.Client(start_servers(3).urls) as client:
        caplog.set_level(logging.DEBUG, "quorlock")
        for round_ in range(100):
            with client.lock(f"r{round_}"):
                assert of(caplog.records, "lease.acquired", resource=f"r{round_}")
            assert of(caplog.records, "lease.released", resource=f"r{round_}")
        with client.lock("s") as lease:
            with pytest.raises(quorlock.LockTimeoutError):
                client.lock("s", wait=0).acquire()
            assert of(caplog.records, "acquire.failed", resource="s", outcome="timeout")
            lease.extend()
            assert of(caplog.records, "lease.extended", resource="s")
        lost = client.lock("t", ttl=0.05, auto_extend=False).acquire()
        assert lost.wait_lost(TIMEOUT)
        assert of(caplog.records, "lease.lost", resource="t", levelname="WARNING")
    assert {r.threadName for r in caplog.records if r.name.startswith("quorlock.")} == {
        "quorlock-logging"
    }


def test_the_events_of_an_async_block_are_logged_when_it_is_left(
    start_servers: Callable[..., Servers], caplog: pytest.LogCaptureFixture
) -> None:
    urls = start_servers(1).urls

    async def hold() -> None:
        async with quorlock.Client(urls) as client:
            caplog.set_level(logging.DEBUG, "quorlock")
            for round_ in range(100):
                async with client.lock(f"r{round_}") as lease:
                    assert of(caplog.records, "lease.acquired", fence=lease.fence)
                assert of(caplog.records, "lease.released", fence=lease.fence)

    asyncio.run(hold())


class WaitsFor(logging.Handler):
    """A handler that waits for an event, or calls a function, for each record."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.work = work

    def emit(self, record: logging.LogRecord) -> None:
        self.work()


@pytest.fixture
def handle() -> Iterator[Callable[[Callable[[], object]], None]]:
    """`handle(work)` calls `work` for each record until the end of the test."""
    logger = logging.getLogger("quorlock")
    before, level = logger.handlers[:], logger.level

    def handle(work: Callable[[], object]) -> None:
        logger.addHandler(WaitsFor(work))
        logger.setLevel(logging.DEBUG)

    yield handle
    logger.handlers[:] = before
    logger.setLevel(level)


def test_a_handler_can_use_the_client(handle: Callable[[Callable[[], object]], None]) -> None:
    with quorlock.Client(["memory://handled"]) as client:
        handled: list[bool] = []
        handle(lambda: handled.append(client.lock("h").locked()))
        with client.lock("r"):
            assert handled == [False, False]  # for `node.connected` and `lease.acquired`
        assert handled == [False, False, False]


HANGS = """
import logging, threading, time, quorlock
class Hangs(logging.Handler):
    def emit(self, record):
        may_go_on.wait()
may_go_on = threading.Event()
logger = logging.getLogger("quorlock")
logger.addHandler(Hangs())
logger.setLevel(logging.DEBUG)
client = quorlock.Client(ttl=2)
began = time.monotonic()
with client.lock("r") as lease:
    for _ in range(20):
        client.lock("s").acquire().release()
    assert lease.valid
    assert client.stats().extensions > 0
took = time.monotonic() - began
may_go_on.set()
print(took)
"""


def test_operations_do_not_wait_for_a_handler_that_hangs(
    start_servers: Callable[..., Servers],
) -> None:
    took = float(run(HANGS, start_servers(1).urls).stdout)
    # One operation waits for 1 s. More than that only means a loaded machine, but not 20 s.
    assert 1 <= took < 10


def run(program: str, urls: list[str]) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"QUORLOCK_NODES": ",".join(urls)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


LOSE = """
client = quorlock.Client(ttl=0.05, auto_extend=False)
lease = client.lock("r").acquire()
assert lease.wait_lost(60)
"""


def test_a_program_that_does_not_log_gets_no_output() -> None:
    program = "import quorlock, sys; assert 'logging' not in sys.modules" + LOSE
    program += "assert 'logging' not in sys.modules\n"
    for beginning in ["", "import logging\n"]:
        checked = program if not beginning else beginning + "import quorlock" + LOSE
        ended = run(checked, ["memory://silent"])
        assert (ended.stdout, ended.stderr) == ("", "")


def test_the_last_events_are_logged_before_the_process_exits() -> None:
    # Runs after the exit handlers of quorlock and logging.
    program = "import atexit\natexit.register(lambda: lease.release())\n"
    program += f"import logging, quorlock\nlogging.basicConfig(level='DEBUG'){LOSE}"
    program += "lease = client.lock('last').acquire()\n"
    for _ in range(3):
        lines = run(program, ["memory://last"]).stderr.splitlines()
        assert sum(line.startswith("WARNING:quorlock.lease:lease lost") for line in lines) == 1
        assert sum("lease acquired resource=last" in line for line in lines) == 1
        assert sum("lease released resource=last" in line for line in lines) == 1


def test_a_forked_child_logs_too(start_servers: Callable[..., Servers]) -> None:
    program = """
import logging, os, quorlock
logging.basicConfig(level="DEBUG", format="%(process)d %(name)s %(message)s")
client = quorlock.Client()
def hold():
    client.lock("r").acquire().release()
hold()
for _ in range(10):
    child = os.fork()
    if child == 0:
        hold()
        raise SystemExit
    hold()
    assert os.waitpid(child, 0)[1] == 0
print(os.getpid())
"""
    ended = run(program, start_servers(1).urls)
    logged = [line.split() for line in ended.stderr.splitlines() if "lease acquired" in line]
    assert len(logged) == 21
    assert len({process for process, *_ in logged}) == 11
    assert sum(process == ended.stdout.strip() for process, *_ in logged) == 11


THREADS = """
import asyncio, logging, os, sys, threading, quorlock
class WatchesNoSockets(asyncio.SelectorEventLoop):
    def add_reader(self, *_):
        raise NotImplementedError
client = quorlock.Client()
lease = client.lock("r", ttl=0.05, auto_extend=False).acquire()
names = []
lease.on_lost(lambda loss: names.append(threading.current_thread().name))
async def main():
    async with client.lock("s"):
        pass
with asyncio.Runner(loop_factory=WatchesNoSockets) as runner:
    runner.run(main())
assert lease.wait_lost(60)
names += [thread.name for thread in threading.enumerate()]
for task in os.listdir("/proc/self/task") if sys.platform == "linux" else []:
    names += [open(f"/proc/self/task/{task}/comm").read().strip()]
print(*sorted({name for name in names if name.startswith("quorlock")}))
"""


def test_threads_have_the_names_that_are_documented() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    documented = set(re.findall(r"^\| `(quorlock[\w-]*)` \|", page, re.M))
    names = set(run(THREADS, ["memory://threads"]).stdout.split())
    if sys.platform != "linux":
        names.add("quorlock")
    # A memory node has no host name to look up.
    assert names == documented - {"quorlock-lookup"}


@pytest.mark.parametrize(
    ("library", "patch"),
    [("gevent.monkey", "gevent.monkey.patch_all()"), ("eventlet", "eventlet.monkey_patch()")],
)
def test_threads_have_their_names_where_greenlets_replace_threads(library: str, patch: str) -> None:
    program = (
        f"import {library}\n{patch}\n"
        + """
import logging, threading, time, quorlock
names = []
class Names(logging.Handler):
    def emit(self, record):
        names.append(record.threadName)
logging.getLogger("quorlock").addHandler(Names())
logging.getLogger("quorlock").setLevel(logging.DEBUG)
lease = quorlock.Client().lock("r", ttl=0.05, auto_extend=False).acquire()
lease.on_lost(lambda: names.append(threading.current_thread().name))
while set(names) != {"quorlock-logging", "quorlock-lost"}:
    time.sleep(0.001)
"""
    )
    run(program, ["memory://greenlets"])
