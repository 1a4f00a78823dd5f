"""Threads that call Python functions for the core: for `on_lost`, `logging` and some event loops.

They are Python's own daemon threads, so the interpreter can end while they are at work.
"""

# Not when a thread is first needed: a fork while another thread imports it would leave the child
# waiting.
import threading
from contextlib import suppress

from . import _hubs
from ._quorlock import Worker


def start(worker: Worker) -> None:
    """Starts a thread that makes the calls of `worker`.

    Raises RuntimeError if the system has no thread left.
    """
    start_thread = _hubs.start_real_thread()
    if start_thread is None:
        threading.Thread(target=_work, args=(worker,), name=worker.name, daemon=True).start()
    else:
        start_thread(_work, (worker,))


def _work(worker: Worker) -> None:
    while True:
        function, arguments, another = worker.next()
        if another is not None:
            # A slow call is not to hold up the next ones. Without a thread for that, it does.
            with suppress(RuntimeError):
                start(another)
        try:
            function(*arguments)
        except BaseException as error:
            worker.report(function, error)
        # Not while it waits for the next call: they may refer to a lease.
        del function, arguments, another
