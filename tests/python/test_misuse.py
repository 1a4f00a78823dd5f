"""Idioms of `threading`, redis-py and other libraries: each error says what to write instead."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import quorlock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def client() -> Iterator[quorlock.Client]:
    with quorlock.Client(["memory://misuse"], wait=0) as client:
        yield client


ATTRIBUTES = [
    ("release", "lease.release()"),
    ("extend", "lease.extend()"),
    ("owned", "lease.valid"),
    ("reacquire", "lease.extend()"),
    ("do_release", "lease.release()"),
    ("fence", "lease.fence"),
    ("token", "lease.token"),
    ("valid", "lease.valid"),
]


@pytest.mark.parametrize(("name", "instead"), ATTRIBUTES)
def test_a_lock_names_the_member_of_the_lease_that_does_it(
    client: quorlock.Client, name: str, instead: str
) -> None:
    for lock in (client.lock("r"), client.semaphore("r", limit=2)):
        assert not hasattr(lock, name)
        with pytest.raises(AttributeError) as caught:
            getattr(lock, name)
        kind = type(lock).__name__
        assert str(caught.value) == (
            f"{kind!r} object has no attribute {name!r}; write `with lock as lease:`, "
            f"then `{instead}`"
        )
        assert (caught.value.name, caught.value.obj) == (name, lock)


def test_a_lease_names_its_own_member(client: quorlock.Client) -> None:
    with client.lock("r") as lease:
        with pytest.raises(AttributeError, match=r"attribute 'owned'; write `lease\.valid`$"):
            lease.owned  # type: ignore[attr-defined]  # noqa: B018
        assert not hasattr(lease, "reacquire")


def test_other_attributes_have_the_usual_error(client: quorlock.Client) -> None:
    lock: Any = client.lock("r")
    for name in ("nosuch", "_native", "__nosuch__"):
        with pytest.raises(AttributeError) as caught:
            getattr(lock, name)
        assert str(caught.value) == f"'Lock' object has no attribute {name!r}"
    with lock as lease:
        assert not hasattr(lease, "nosuch")
    # These look for attributes that a lock does not have.
    for operation in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="Lock"):
            operation(lock)


ARGUMENTS = [
    ("acquire(True)", r"'blocking': `try_acquire\(\)` tries once"),
    ("acquire(False)", r"'blocking': `try_acquire\(\)` tries once"),
    ("acquire(blocking=False)", r"'blocking': `try_acquire\(\)` tries once"),
    ("acquire(False, 0)", r"'blocking': `try_acquire\(\)` tries once"),
    ("acquire(timeout=5)", r"'timeout': write `acquire\(wait=…\)`"),
    ("acquire(blocking=True, timeout=5)", r"'blocking': .* waits for at most `wait`"),
    ("acquire(blocking_timeout=5)", r"'blocking_timeout': write `acquire\(wait=…\)`"),
    ("acquire(5)", r"by name: write `acquire\(wait=5\)`"),
    ("acquire(-1)", r"by name: write `acquire\(wait=-1\)`"),
    ("acquire('secret')", r"by name: write `acquire\(wait=…\)`"),
    ("acquire(sleep=0.1)", "'sleep': leave it out, because waiters are notified"),
    ("acquire(token='secret')", "'token': leave it out"),
    ("acquire(ttl=5)", r"'ttl': it is an option of the lock: write `client\.lock\(…, ttl=…\)`"),
    ("acquire(nosuch=5)", "'nosuch': it can be wait"),
]


@pytest.mark.parametrize(("call", "says"), ARGUMENTS, ids=[call for call, _ in ARGUMENTS])
def test_an_argument_of_another_library_is_refused_with_the_right_one(
    client: quorlock.Client, call: str, says: str
) -> None:
    for lock in (client.lock("r"), client.semaphore("r", limit=2)):
        form = call.replace("acquire(", "acquire_async(")
        run = asyncio.run
        for code in (f"lock.{call}", f"run(lock.{form})"):
            with pytest.raises(TypeError, match=says) as caught:
                eval(code, {"lock": lock, "run": run})
            assert "secret" not in str(caught.value)
    assert client.stats().wins == 0


def test_a_number_without_a_name_may_be_that_of_permits(client: quorlock.Client) -> None:
    with pytest.raises(TypeError, match=r"`acquire\(wait=3\)` or `acquire\(permits=3\)`$"):
        client.semaphore("r", limit=5).acquire(3)  # type: ignore[arg-type]


def test_a_lock_in_a_condition_is_refused_because_the_body_would_run_without_it(
    client: quorlock.Client,
) -> None:
    election = client.elect("r")
    for lock in (client.lock("r"), client.semaphore("r", limit=2)):
        with pytest.raises(TypeError, match=r"have no truth value.*`with lock:`.*`is not None`"):
            assert not lock
        assert lock is not None
    with pytest.raises(TypeError, match=r"Election objects have no truth value.*call `run`"):
        assert not election
    with client.lock("r") as lease:
        assert lease


TYPES = """
import quorlock
lock = quorlock.Client(["memory://a"]).lock("r")
semaphore = quorlock.Client(["memory://a"]).semaphore("r", limit=2)
lock.release()
semaphore.owned
lock.acquire(5)
lock.acquire(timeout=5)
semaphore.acquire(blocking=False)
lock.acquire().reacquire()
lock.acquire(wait=5)
semaphore.acquire(wait=None, permits=2)
from quorlock import Stats, LockTimeout
"""


def test_type_checkers_still_report_the_same_mistakes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPES)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--cache-dir", tmp_path, "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "bindings-python" / "python"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in checked.stdout.splitlines() if line.startswith("program.py")]
    reported = {int(line.split(":")[1]) for line in lines if " error: " in line}
    assert reported == {*range(5, 11), 13}, checked.stdout + checked.stderr


# What a lock must not decorate


def generator() -> Iterator[None]:
    yield


async def async_generator() -> Any:
    yield


class Methods:
    def work(self) -> None:
        """Would run without the lock."""


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (contextmanager(generator), "a generator or a context manager; use `with` in its body"),
        (asynccontextmanager(async_generator), "a generator or a context manager"),
        (functools.partial(contextmanager(generator)), None),
        (functools.partial(asynccontextmanager(async_generator)), None),
        (generator, "a generator or a context manager"),
        (Methods, "decorate the methods"),
        (property(Methods.work), "directly above `def`, below all other decorators"),
        (functools.cached_property(Methods.work), "directly above `def`, below all other"),
        (pytest.fixture(lambda: None), "a pytest fixture is not held when"),
    ],
    ids=lambda value: "" if value is None or isinstance(value, str) else type(value).__name__,
)
def test_what_a_lock_could_not_protect_is_refused_when_it_is_decorated(
    client: quorlock.Client, target: Any, says: str | None
) -> None:
    by_call = client.lock(lambda: "r")
    for decorate in (client.lock("r"), client.semaphore("r", limit=2), by_call):
        if says is None:  # only the call shows what it returns
            with pytest.raises(TypeError, match="a context manager, whose body would run after"):
                decorate(target)()
        else:
            with pytest.raises(TypeError, match=says):
                decorate(target)


def test_the_right_order_of_decorators_of_the_standard_library_holds_the_lock(
    client: quorlock.Client,
) -> None:
    lock = client.lock("r")

    class Service:
        @property
        @lock
        def of_property(self) -> bool:
            return lock.locked()

        @functools.cached_property
        @lock
        def cached(self) -> bool:
            return lock.locked()

        @classmethod
        @lock
        def of_class(cls) -> bool:
            return lock.locked()

        @lock
        @classmethod
        def of_class_below(cls) -> bool:
            return lock.locked()

        @staticmethod
        @lock
        def static() -> bool:
            return lock.locked()

    @functools.lru_cache
    @lock
    def cached_by_arguments() -> bool:
        return lock.locked()

    @lock
    @functools.lru_cache
    def locked_for_hits_too() -> bool:
        return lock.locked()

    service = Service()
    assert service.of_property
    assert service.cached
    assert Service.of_class()
    assert Service.of_class_below()
    assert Service.static()
    assert cached_by_arguments()
    assert cached_by_arguments()
    assert locked_for_hits_too()
    assert client.stats().wins == 7


def test_objects_that_have_every_attribute_can_be_decorated(client: quorlock.Client) -> None:
    from unittest.mock import Mock

    work = Mock(return_value=1, __name__="work")
    assert client.lock("r")(work)() == 1
