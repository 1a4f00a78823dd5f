"""examples/kubernetes/scheduler.py: pods that hand the role over while they are updated."""

from __future__ import annotations

from collections.abc import Callable

from examples.programs import Program
from nodes import keys, listeners
from servers import Servers
from waiting import wait_until

WORKS = r"works with fence (\d+)"


def start_pod(start_python: Callable[..., Program], servers: Servers, number: int) -> Program:
    """Starts a pod, and waits until it leads or is a candidate."""
    name = f"scheduler-{number}"
    options = {"POD_NAME": name, "REPLICAS": "3", "QUORLOCK_RESTART_GUARD": "off"}
    pod = start_python("kubernetes", "scheduler.py", **options)
    wait_until(lambda: all(listeners(servers, "leader:scheduler", name)) or "works" in pod.text)
    return pod


def test_a_rolling_update_hands_the_role_over(
    start_python: Callable[..., Program], servers: Servers
) -> None:
    pods = [start_pod(start_python, servers, number) for number in range(3)]
    fence = int(pods[0].wait_for(WORKS)[1])
    # A StatefulSet replaces the pods from the last to the first.
    for number in (2, 1):
        assert pods[number].terminate() == 0, pods[number].text
        assert "works" not in pods[number].text
        pods[number] = start_pod(start_python, servers, number)
    assert pods[0].terminate() == 0, pods[0].text
    assert "handed over to scheduler-2" in pods[0].text
    next_fence = int(pods[2].wait_for(WORKS)[1])
    assert next_fence > fence

    # The last one has nobody to hand over to, and releases the lease.
    assert pods[1].terminate() == 0, pods[1].text
    assert pods[2].terminate() == 0, pods[2].text
    assert "handed over" not in pods[2].text
    assert not keys(servers)
