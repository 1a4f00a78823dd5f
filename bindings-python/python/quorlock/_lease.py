"""Leases: locks that are held."""

import warnings
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from typing import Any

from . import _quorlock
from ._async import inbox_of, result, running_loop
from ._errors import LeaseLostError

Duration = float | timedelta
"""Seconds, or a `timedelta`."""


class Lease:
    """A held lock. Whoever has the lease owns it: any thread or task may use it.

    It is extended automatically (unless `auto_extend` is off) until it is released, or has been
    held for `max_hold`. Keep it for as long as the work takes, or use `with`: a lease that is
    garbage-collected while valid is not released, but not extended any more either. Its key stays
    on the nodes until it expires, a ResourceWarning is issued, and `Client.stats` counts it as
    `dropped`. So `if lock.acquire(): ...` protects its body for up to `ttl`.

    In a forked child, a lease of the parent is over: it is not valid, is not extended, and is not
    released there. The parent still holds it.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _quorlock.Lease) -> None:
        self._native = native

    @property
    def resources(self) -> tuple[str, ...]:
        """What is locked, in the order given."""
        return self._native.resources

    @property
    def token(self) -> str:
        """The value of the key on the nodes: 40 hexadecimal digits, different for every lease, and
        the same for all of its resources."""
        return self._native.token

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of every earlier lease of the resource, below 2**53.

        Send it with every write, and let the storage refuse a smaller one than it has seen. Raises
        ConfigError for a lease of several resources: they have `fences`.
        """
        return self._native.fence

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each resource, in the order given; a new dict each time.

        Send each with the writes to its resource; see `fence`.
        """
        return self._native.fences

    @property
    def valid(self) -> bool:
        """Whether the lock is held now: by the local clock, without asking the nodes.

        Once it is `False`, it stays so.
        """
        return self._native.valid

    @property
    def remaining(self) -> float:
        """How many more seconds the lease is valid, if it is not extended; 0.0 if it is not."""
        return self._native.remaining

    def check(self) -> None:
        """Raises LeaseLostError, with the reason, unless the lease is valid."""
        self._native.check()

    def extend(self, ttl: Duration | None = None) -> None:
        """Extends the lease to `ttl` from now (10 ms to 24 h), or by the ttl it was acquired with.

        It is never made shorter, and never extended beyond `max_hold`. Raises LeaseLostError if the
        lease is over, and QuorumError if too few nodes confirm, and still do not after
        `connect_timeout`: the lease then stands as it was.
        """
        self._native.extend(ttl).wait()

    async def extend_async(self, ttl: Duration | None = None) -> None:
        """`extend` for asyncio. Cancelling it does not stop the extension."""
        await result(self._native.extend(ttl))

    def release(self) -> bool:
        """Releases the lock; it is not valid from this call on, whatever the nodes answer.

        Returns True if the lease was valid until now and a majority of the nodes confirms it;
        False if it was lost or released before, or if too few nodes confirm within a third of the
        ttl (at most 10 s, at least `node_timeout`). Never an error: the lock is given up in any
        case, and nodes that cannot be reached are told in the background.
        """
        return self._native.release().wait()

    async def release_async(self) -> bool:
        """`release` for asyncio. Cancelling it does not stop the release."""
        return await result(self._native.release())

    def on_lost(self, callback: Callable[[LeaseLostError], object] | Callable[[], object]) -> None:
        """Calls the function when the lease is lost: at its validity end at the latest, and at once
        if it is lost already. Not if it is released.

        It is called with the LeaseLostError, or with nothing if it takes no argument. Where this
        is called in an event loop, so is the function; elsewhere it is called on a daemon thread.
        Functions of one lease are called one after another. One that takes long holds up no other
        lease, unless 16 of them take long.

        Raises RuntimeError if the system cannot start that thread; the function is not called then.
        """
        call = _taking_loss(callback)
        loop = running_loop()
        if loop is None:
            self._native.on_lost(None, call)
        else:
            context = copy_context()
            self._native.on_lost(inbox_of(loop), lambda loss: context.run(call, loss))

    def wait_lost(self, timeout: Duration | None = None) -> bool:
        """Waits until the lease is lost, for at most `timeout` (None: for ever).

        Returns True as soon as it is lost, at its validity end at the latest; False as soon as it
        is released, or when the time is up.
        """
        return self._native.wait_lost(_quorlock.timeout(timeout))

    async def wait_lost_async(self, timeout: Duration | None = None) -> bool:
        """`wait_lost` for asyncio."""
        import asyncio

        seconds = _quorlock.timeout(timeout)
        try:
            async with asyncio.timeout(seconds):
                return await result(self._native.lost())
        except TimeoutError:
            return False

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        # It was never set where __init__ was interrupted. The native lease releases itself then.
        native = getattr(self, "_native", None)
        if native is not None and native.abandon():
            warn(
                f"{self!r} was never released: others can lock it only when that time is over. Use "
                "`with lock:`, or keep the lease and call `release()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        state = f"valid for {self.remaining:.3f} s" if self.valid else "not valid"
        held = ", ".join(f"{name!r} (fence {fence})" for name, fence in self.fences.items())
        return f"<quorlock.Lease of {held}, {state}>"


def _taking_loss(callback: Callable[..., object]) -> Callable[[Any], object]:
    """The function as one that takes the loss."""
    if not callable(callback):
        raise TypeError(f"the callback must be callable, not {callback!r}")
    import inspect

    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        return lambda _: callback()
    except ValueError:  # its signature is not known
        pass
    return callback
