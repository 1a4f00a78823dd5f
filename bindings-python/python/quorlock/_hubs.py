"""Waiting in programs where gevent or eventlet has patched `threading`: greenlets replace threads.

A blocking call would block all greenlets of its thread, perhaps including the one that holds the
lock. So a greenlet waits in the hub, which watches the socket of an inbox like an event loop does.
The thread pool of the hub cannot be used: a few waiters would occupy all its threads.

This module owns one `Hub` per gevent or eventlet hub. It must not import gevent or eventlet unless
the program has imported them. The native `waiting` module and `_threads` call it.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ._errors import QuorumError
from ._quorlock import Completing, Inbox, Pending

_Start = Callable[[Callable[..., object], tuple[Any, ...]], object]


class Hub(Protocol):
    """The hub in which the greenlets of one thread wait."""

    def wait(self, pending: "Pending[Any]", timeout: float | None) -> "Completing[Any] | None":
        """Waits for an operation for at most `timeout` seconds. Returns None if it is not done by
        then.

        If an exception ends the wait, the operation is cancelled. Examples are a gevent timeout and
        a killed greenlet.
        """


def _gevent() -> Any:
    """Returns `gevent.monkey` if it has patched `threading`."""
    monkey = sys.modules.get("gevent.monkey")
    patched = getattr(monkey, "is_module_patched", None)
    return monkey if patched is not None and patched("threading") else None


def _eventlet() -> Any:
    """Returns `eventlet.patcher` if it has patched `threading`."""
    patcher = sys.modules.get("eventlet.patcher")
    patched = getattr(patcher, "is_monkey_patched", None)
    return patcher if patched is not None and patched("thread") else None


def current() -> Hub | None:
    """Returns the hub of this thread. Returns None in the hub's own greenlet, or if `threading` is
    not patched, so that a blocking call blocks only its own thread."""
    if _gevent() is not None:
        return _gevent_hub()
    if _eventlet() is not None:
        return _eventlet_hub()
    return None


def start_real_thread() -> _Start | None:
    """Returns a function that starts a real thread, not a greenlet. Returns None if `threading` is
    not patched and so starts real threads itself."""
    if (monkey := _gevent()) is not None:
        start: _Start = monkey.get_original("_thread", "start_new_thread")
        return start
    if (patcher := _eventlet()) is not None:
        thread = patcher.original("threading").Thread
        return lambda function, arguments: thread(
            target=function, args=arguments, daemon=True
        ).start()
    return None


class _Hub:
    """The common part of both hubs: watches the inbox while greenlets wait."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._waiting = 0
        # A forked child inherits this object but must not use its socket, so it creates another
        # one.
        self.process = os.getpid()

    def wait(self, pending: "Pending[Any]", timeout: float | None) -> "Completing[Any] | None":
        event = self._event()
        completing = pending.complete(self._inbox, event)
        try:
            self._waiting += 1
            if self._waiting == 1:
                self._watch()
            try:
                is_done = self._wait(event, timeout)
            finally:
                self._waiting -= 1
                if self._waiting == 0:
                    self._unwatch()
            if is_done:
                return completing
        except BaseException:
            completing.cancel()
            raise
        completing.cancel()
        return None

    def _deliver(self, *_: object) -> None:
        for event, _nothing in self._inbox.take():
            self._set(event)

    def _event(self) -> Any:
        raise NotImplementedError

    def _wait(self, event: Any, timeout: float | None) -> bool:
        raise NotImplementedError

    def _set(self, event: Any) -> None:
        raise NotImplementedError

    def _watch(self) -> None:
        raise NotImplementedError

    def _unwatch(self) -> None:
        raise NotImplementedError


def open_inbox() -> Inbox:
    """Returns an inbox with a socket, which the event loop or hub watches.

    Raises QuorumError if the process cannot open another file, and NotImplementedError if the
    system has no Unix sockets.
    """
    try:
        return Inbox(None)
    except OSError as error:
        message = f"the event loop cannot be notified of results: {error}"
        raise QuorumError(message) from error


class _GeventHub(_Hub):
    def __init__(self, hub: Any) -> None:
        from gevent.event import Event

        self._new_event = Event
        try:
            inbox = open_inbox()
            # 1 means "readable".
            self._watcher = hub.loop.io(inbox.fileno(), 1)
        except NotImplementedError:
            # Windows has no Unix sockets: a thread wakes up the hub.
            self._watcher = hub.loop.async_()
            inbox = Inbox(self._watcher.send)
        super().__init__(inbox)

    def _event(self) -> Any:
        return self._new_event()

    def _wait(self, event: Any, timeout: float | None) -> bool:
        return bool(event.wait(timeout))

    def _set(self, event: Any) -> None:
        event.set()

    def _watch(self) -> None:
        self._watcher.start(self._deliver)

    def _unwatch(self) -> None:
        self._watcher.stop()


def _gevent_hub() -> Hub | None:
    from gevent import get_hub, getcurrent

    hub = get_hub()
    if getcurrent() is hub:
        return None
    own: _Hub | None = getattr(hub, "_quorlock", None)
    if own is None or own.process != os.getpid():
        own = hub._quorlock = _GeventHub(hub)
    return own


class _EventletHub(_Hub):
    def __init__(self, hub: Any) -> None:
        super().__init__(open_inbox())
        from eventlet.event import Event

        self._new_event = Event
        self._hub = hub
        self._listener: Any = None

    def _event(self) -> Any:
        return self._new_event()

    def _wait(self, event: Any, timeout: float | None) -> bool:
        return event.wait(timeout) is not None

    def _set(self, event: Any) -> None:
        event.send(True)

    def _watch(self) -> None:
        fileno = self._inbox.fileno()
        self._listener = self._hub.add(
            self._hub.READ, fileno, self._deliver, self._fail, self._fail
        )

    def _unwatch(self) -> None:
        self._hub.remove(self._listener)

    def _fail(self, *_: object) -> None:
        """Called by eventlet if the socket is closed while it is watched. That never happens: the
        hub keeps the socket open."""


def _eventlet_hub() -> Hub | None:
    from eventlet.hubs import get_hub
    from greenlet import getcurrent

    hub = get_hub()
    if getcurrent() is hub.greenlet:
        return None
    own: _Hub | None = getattr(hub, "_quorlock", None)
    if own is None or own.process != os.getpid():
        own = hub._quorlock = _EventletHub(hub)
    return own
