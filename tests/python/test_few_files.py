"""A process that cannot open files: the first use fails with an error, and works once it can."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, resource, sys
import quorlock

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
client = quorlock.Client(["memory://files"])
lock = client.lock("r")
loop = asyncio.new_event_loop()
# What a loop opens on first use is not quorlock's.
loop.run_until_complete(asyncio.sleep(0))

async def use():
    async with lock:
        pass

def block():
    with lock:
        pass

uses = {"threads": block, "asyncio": lambda: loop.run_until_complete(use())}
work = uses[sys.argv[1]]
number = len(os.listdir("/proc/self/fd")) - 1
for spare in range(5):
    resource.setrlimit(resource.RLIMIT_NOFILE, (number + spare, hard))
    try:
        work()
    except quorlock.QuorlockError as error:
        failure = error
    else:
        failure = None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(failure, quorlock.QuorumError), (spare, failure)
    assert "Too many open files" in str(failure), failure
work()
print("locked")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_the_first_use_without_files_fails_and_works_later(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "locked\n", "")
