"""Tests without servers and without sleeping. The fixture `quorlock_nodes` comes with quorlock."""

import pytest
from quorlock import LeaseLostError
from quorlock.testing import Nodes

from orders import charge


def pay(fence: int) -> None:
    assert fence > 0


def test_an_order_is_charged(quorlock_nodes: Nodes) -> None:
    client = quorlock_nodes.client()
    assert charge(client, 42, pay) == "charged"


def test_another_process_holds_the_lock(quorlock_nodes: Nodes) -> None:
    client = quorlock_nodes.client()
    quorlock_nodes.hold("orders:42")
    with quorlock_nodes.fast_forward():  # the wait of 5 s takes no time
        assert charge(client, 42, pay) == "busy, try again later"


def test_the_other_process_crashes(quorlock_nodes: Nodes) -> None:
    client = quorlock_nodes.client()
    quorlock_nodes.hold("orders:42", ttl=3, auto_extend=False)
    with quorlock_nodes.fast_forward():
        assert charge(client, 42, pay) == "charged"


def test_two_of_three_nodes_are_down(quorlock_nodes: Nodes) -> None:
    client = quorlock_nodes.client()
    quorlock_nodes[0].cut()
    quorlock_nodes[1].cut()
    with quorlock_nodes.fast_forward():
        assert charge(client, 42, pay) == "out of service"
    quorlock_nodes.mend()
    assert charge(client, 42, pay) == "charged"


def test_the_lock_is_lost_during_the_payment(quorlock_nodes: Nodes) -> None:
    client = quorlock_nodes.client()
    with pytest.raises(LeaseLostError):
        charge(client, 42, lambda fence: quorlock_nodes.suspend(10))


def test_a_long_payment_keeps_the_lock(quorlock_nodes: Nodes) -> None:
    client = quorlock_nodes.client()
    assert charge(client, 42, lambda fence: quorlock_nodes.advance(600)) == "charged"
