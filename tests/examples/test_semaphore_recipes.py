"""examples/semaphores: a limit of calls, numbers of workers, and a limit for each customer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from examples.gateway import Gateway
from examples.programs import Program
from nodes import is_free, keys, steal
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
DIRECTORY = "semaphores"
LIMIT = 4
"""The limit of calls in `caller.py` and `caller.js`."""


@pytest.fixture
def start_callers(start_python: Start, start_node: Start) -> Callable[[], list[Program]]:
    """Starts two programs in each language. Each makes three calls at a time if it may."""

    def start_callers() -> list[Program]:
        callers = [start_python(DIRECTORY, "caller.py") for _ in range(2)]
        return callers + [start_node(DIRECTORY, "caller.js") for _ in range(2)]

    return start_callers


def answered(gateway: Gateway, language: str) -> int:
    calls = [call for call in gateway.calls if call.key.startswith(language)]
    return sum(call.state == "answered" for call in calls)


def waiters(servers: Servers, resource: str) -> int:
    """Returns the number of waiters for permits that a majority of the nodes has."""
    counts = [server.command("ZCARD", f"{{{resource}}}:permits:queue") for server in servers]
    return sorted(int(str(count)) for count in counts)[1]


def test_programs_in_two_languages_share_the_calls(
    start_callers: Callable[[], list[Program]], gateway: Gateway, servers: Servers
) -> None:
    gateway.hold()
    callers = start_callers()
    wait_until(lambda: gateway.in_progress("stripe") == LIMIT)
    # At least one task of each program with waiting tasks joins the nodes' queues. At most one
    # program has no waiting tasks, because all of its three tasks have calls.
    wait_until(lambda: waiters(servers, "api:stripe") >= len(callers) - 1)
    gateway.release()
    wait_until(lambda: min(answered(gateway, name) for name in ("python", "node")) >= 50)
    for caller in callers:
        assert caller.terminate() == 0, caller.text
        assert "waited too long" not in caller.text
        assert "cut off" not in caller.text
    assert gateway.most["stripe"] == LIMIT
    wait_until(lambda: not keys(servers))


def test_the_permits_of_a_killed_program_are_used_again(
    start_callers: Callable[[], list[Program]], gateway: Gateway
) -> None:
    gateway.hold()
    callers = start_callers()
    wait_until(lambda: gateway.in_progress("stripe") == LIMIT)
    first = gateway.calls[0].key
    killed = next(caller for caller in callers if f"-{caller.pid}-" in first)
    killed.kill()
    wait_until(lambda: gateway.calls[0].state == "aborted")
    wait_until(lambda: gateway.in_progress("stripe") == LIMIT)
    assert gateway.most["stripe"] == LIMIT


STARTS = 5
"""The number of calls that may begin in a second, in `mails.py` and `mails.js`."""


def check_rate(gateway: Gateway) -> None:
    """Checks that no second has more than `STARTS` calls."""
    began = sorted(call.at for call in gateway.calls)
    for first, next_one in zip(began, began[STARTS:], strict=False):
        assert next_one - first > 1


def test_no_second_has_more_calls_than_permits(
    start_python: Start, start_node: Start, gateway: Gateway
) -> None:
    programs = [start_python(DIRECTORY, "mails.py"), start_node(DIRECTORY, "mails.js")]
    for program in programs:
        assert program.end() == 0, program.text
    assert gateway.states == ["answered"] * 20
    check_rate(gateway)


def test_no_second_has_more_calls_although_a_program_is_killed(
    start_python: Start, gateway: Gateway
) -> None:
    gateway.hold()
    killed, other = (start_python(DIRECTORY, "mails.py") for _ in range(2))
    wait_until(lambda: gateway.in_progress("None") == STARTS)
    killed.kill()
    gateway.release()
    assert other.end() == 0, other.text
    assert gateway.states.count("answered") >= 10
    check_rate(gateway)


class Worker:
    """A process of `ids.py`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.number = int(program.wait_for(r"^worker (\d+) ")[1])

    def ids(self) -> list[int]:
        # A killed process may have written a part of a line.
        return [int(text) for text in re.findall(r"^id (\d+)\n", self.program.text, re.MULTILINE)]

    def wait_for_ids(self, count: int) -> None:
        enough = len(self.ids()) + count
        wait_until(lambda: len(self.ids()) >= enough)


def number_in(made: int) -> int:
    """Returns the worker number in an id."""
    return made >> 12 & 31


def milliseconds_in(made: int) -> int:
    """Returns the time in an id."""
    return made >> 17


@pytest.fixture
def start_ids(start_python: Start) -> Callable[..., Program]:
    """Starts one of the processes that share two numbers."""

    def start_ids(**more: str) -> Program:
        return start_python(DIRECTORY, "ids.py", **{"WORKERS": "2", **more})

    return start_ids


def check_unique(*workers: Worker) -> None:
    """Checks the ids so far. The workers may still run."""
    ids = [worker.ids() for worker in workers]
    assert len({made for each in ids for made in each}) == sum(map(len, ids))
    for worker, each in zip(workers, ids, strict=True):
        assert each == sorted(each)
        assert {number_in(made) for made in each} == {worker.number}


def test_ids_of_several_processes_are_unique(
    start_ids: Callable[..., Program], servers: Servers
) -> None:
    first, second = Worker(start_ids()), Worker(start_ids())
    assert sorted([first.number, second.number]) == [0, 1]
    third = start_ids()
    wait_until(lambda: waiters(servers, "id-workers") == 1)
    for worker in (first, second):
        worker.wait_for_ids(200)
    assert "worker" not in third.text
    assert first.program.terminate() == 0, first.program.text
    heir = Worker(third)
    assert heir.number == first.number
    heir.wait_for_ids(200)
    for worker in (second, heir):
        assert worker.program.terminate() == 0, worker.program.text
    check_unique(first, second, heir)
    wait_until(lambda: not keys(servers))


def test_ids_are_unique_although_the_clocks_of_two_hosts_differ(
    start_ids: Callable[..., Program], servers: Servers, skewed: str
) -> None:
    ahead = Worker(start_ids(WORKERS="1", LD_PRELOAD=skewed, SKEW="1"))
    heir = start_ids(WORKERS="1")
    wait_until(lambda: waiters(servers, "id-workers") == 1)
    ahead.wait_for_ids(20)
    assert ahead.program.terminate() == 0, ahead.program.text
    second = Worker(heir)
    second.wait_for_ids(20)
    assert milliseconds_in(ahead.ids()[-1]) < milliseconds_in(second.ids()[0])
    check_unique(ahead, second)


def test_the_number_of_a_killed_process_is_used_again_after_its_ttl(
    start_ids: Callable[..., Program], servers: Servers
) -> None:
    first, second = Worker(start_ids()), Worker(start_ids())
    third = start_ids()
    wait_until(lambda: waiters(servers, "id-workers") == 1)
    first.wait_for_ids(20)
    first.program.kill()
    killed = time.monotonic()
    lock = f"{{id-workers}}:permit:{first.number}"
    left = sorted(int(str(server.command("PTTL", lock))) for server in servers)
    heir = Worker(third)
    # Two of three nodes must have deleted the key.
    assert time.monotonic() - killed >= left[1] / 1000
    assert heir.number == first.number
    heir.wait_for_ids(20)
    check_unique(first, second, heir)


def test_a_process_that_loses_its_number_stops(
    start_ids: Callable[..., Program], servers: Servers
) -> None:
    worker = Worker(start_ids())
    worker.wait_for_ids(20)
    steal(servers, f"{{id-workers}}:permit:{worker.number}")
    assert worker.program.end() == 1
    wait_until(lambda: "stopped: " in worker.program.text)
    assert re.search(r"^stopped: .*id-workers", worker.program.output[-1])


def test_a_process_that_was_suspended_makes_no_more_ids(
    start_ids: Callable[..., Program], servers: Servers
) -> None:
    first, second = Worker(start_ids()), Worker(start_ids())
    first.wait_for_ids(20)
    first.program.freeze()
    wait_until(lambda: is_free(servers, f"{{id-workers}}:permit:{first.number}"))
    heir = Worker(start_ids())
    assert heir.number == first.number
    heir.wait_for_ids(20)
    first.program.thaw()
    assert first.program.end() == 1
    wait_until(lambda: "stopped: " in first.program.text)
    assert milliseconds_in(first.ids()[-1]) < milliseconds_in(heir.ids()[0])
    check_unique(first, second, heir)


@pytest.fixture
def start_celery(start_python: Start, queue: Servers) -> Callable[[], Program]:
    def start_celery() -> Program:
        options = "--loglevel INFO --concurrency 4 --without-gossip --without-mingle"
        worker = start_python(DIRECTORY, *f"-m celery --app tasks worker {options}".split())
        worker.wait_for(r"ready\.")
        return worker

    return start_celery


@pytest.fixture
def start_bullmq(start_node: Start, queue: Servers) -> Callable[[], Program]:
    def start_bullmq() -> Program:
        worker = start_node(DIRECTORY, "worker.js")
        worker.wait_for("ready")
        return worker

    return start_bullmq


@pytest.fixture
def add(start_node: Start, start_python: Start, queue: Servers) -> Callable[[str, str], None]:
    """`add(jobs, customers)` adds a job for each letter, which is the name of its customer."""

    def add(jobs: str, customers: str) -> None:
        if jobs == "celery":
            program = f"import tasks\nfor number, name in enumerate('{customers}'):\n"
            program += "    tasks.export.delay(name, number)\n"
            done = start_python(DIRECTORY, "-c", program)
        else:
            program = f"""
                import {{ Queue }} from 'bullmq'
                import IORedis from 'ioredis'
                const options = {{ maxRetriesPerRequest: null }}
                const connection = new IORedis(process.env.QUEUE_URL, options)
                const queue = new Queue('exports', {{ connection }})
                for (const customer of '{customers}') {{
                  await queue.add('export', {{ customer }}, {{ attempts: 2, backoff: 500 }})
                }}
                await queue.close()
                connection.disconnect()
            """
            done = start_node(DIRECTORY, "--input-type=module", "--eval", program)
        assert done.end() == 0, done.text

    return add


Add = Callable[[str, str], None]
JOBS = ["celery", "bullmq"]


def put_back(worker: Program, queue: Servers) -> int:
    """Returns how often a worker has put a job back into the queue."""
    celery = len(re.findall(r"retry: Retry in ", worker.text))
    return celery + int(str(queue[0].command("ZCARD", "bull:exports:delayed")))


def finished(*workers: Program) -> int:
    text = "".join(worker.text for worker in workers)
    return len(re.findall(r"succeeded in | completed$", text, re.MULTILINE))


@pytest.mark.parametrize("jobs", JOBS)
def test_a_customer_with_many_jobs_does_not_hold_up_the_others(
    jobs: str,
    add: Add,
    queue: Servers,
    gateway: Gateway,
    servers: Servers,
    request: pytest.FixtureRequest,
) -> None:
    worker = request.getfixturevalue(f"start_{jobs}")()
    gateway.hold()
    add(jobs, "aaaaaab")
    # The worker runs four jobs at a time. Two of them are for other customers than the first.
    wait_until(lambda: (gateway.in_progress("a"), gateway.in_progress("b")) == (2, 1))
    wait_until(lambda: put_back(worker, queue) >= 4)
    gateway.release()
    wait_until(lambda: finished(worker) == 7)
    assert gateway.states == ["answered"] * 7
    assert (gateway.most["a"], gateway.most["b"]) == (2, 1)
    assert worker.terminate() == 0, worker.text
    assert "failed" not in worker.text
    wait_until(lambda: not keys(servers))


def test_workers_in_two_languages_share_the_limit_of_a_customer(
    start_celery: Callable[[], Program],
    start_bullmq: Callable[[], Program],
    add: Add,
    queue: Servers,
    gateway: Gateway,
    servers: Servers,
) -> None:
    workers = start_celery(), start_bullmq()
    gateway.hold()
    add("celery", "a")
    wait_until(lambda: gateway.in_progress("a") == 1)
    add("bullmq", "aaa")
    wait_until(lambda: gateway.in_progress("a") == 2)
    wait_until(lambda: put_back(workers[1], queue) == 2)
    gateway.release()
    wait_until(lambda: finished(*workers) == 4)
    assert gateway.most["a"] == 2
    for worker in workers:
        assert worker.terminate() == 0, worker.text
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("jobs", JOBS)
def test_a_job_that_loses_its_permit_is_repeated(
    jobs: str, add: Add, gateway: Gateway, servers: Servers, request: pytest.FixtureRequest
) -> None:
    worker = request.getfixturevalue(f"start_{jobs}")()
    gateway.hold()
    add(jobs, "a")
    wait_until(lambda: gateway.states == ["in progress"])
    names = [str(key) for key in keys(servers) if ":permit:" in str(key)]
    steal(servers, names[0])
    if jobs == "celery":
        # A task that is not asynchronous ends its call first.
        gateway.release()
    worker.wait_for(r"Retry in .*LeaseLostError|1 failed: .*customers:a")
    gateway.release()
    for server in servers:
        server.command("DEL", names[0])
    wait_until(lambda: finished(worker) == 1)
    first, second = gateway.calls
    assert first.key == second.key
    assert worker.terminate() == 0, worker.text
