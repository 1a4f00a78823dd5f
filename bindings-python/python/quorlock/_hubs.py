"""Waiting where gevent or eventlet has patched `threading`: greenlets take the place of threads.

A thread that is blocked there blocks all its greenlets, and perhaps the one that holds the lock. So
results come in by a socket that the hub watches, as in an event loop, and a greenlet waits in the
hub. The hub's thread pool would not do: a few waiters would occupy all its threads.
"""

# gevent and eventlet are imported only where the program has imported them.

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ._quorlock import Completing, Inbox, Pending

_Start = Callable[[Callable[..., object], tuple[Any, ...]], object]


class Hub(Protocol):
    """What greenlets of one thread wait in."""

    def wait(self, pending: "Pending[Any]", timeout: float | None) -> "Completing[Any] | None":
        """Waits for an operation, for at most so many seconds; None if it is not done by then.

        An exception, such as that of a timeout or of a greenlet that is killed, cancels it.
        """


def _gevent() -> Any:
    """`gevent.monkey`, where it has patched `threading`."""
    monkey = sys.modules.get("gevent.monkey")
    patched = getattr(monkey, "is_module_patched", None)
    return monkey if patched is not None and patched("threading") else None


def _eventlet() -> Any:
    """`eventlet.patcher`, where it has patched `threading`."""
    patcher = sys.modules.get("eventlet.patcher")
    patched = getattr(patcher, "is_monkey_patched", None)
    return patcher if patched is not None and patched("thread") else None


def current() -> Hub | None:
    """The hub of this thread; None where a thread can be blocked, and in the hub's own greenlet."""
    if _gevent() is not None:
        return _gevent_hub()
    if _eventlet() is not None:
        return _eventlet_hub()
    return None


def start_real_thread() -> _Start | None:
    """What starts a thread that is not a greenlet; None where `threading` does."""
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
    """What the hubs have in common: it watches the inbox while greenlets wait."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._waiting = 0
        # A forked child inherits the hub, but must not share the socket.
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


class _GeventHub(_Hub):
    def __init__(self, hub: Any) -> None:
        from gevent.event import Event

        self._new_event = Event
        try:
            inbox = Inbox(None)
            # 1 is for reading.
            self._watcher = hub.loop.io(inbox.fileno(), 1)
        except NotImplementedError:
            # Windows has no such sockets: a thread wakes the hub.
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
        super().__init__(Inbox(None))
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
        """The hub calls this for a socket that was closed, which does not happen."""


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
