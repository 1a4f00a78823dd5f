"""Daemon threads that call Python functions for the core: for `on_lost`, `logging` and event loops.

They are created in Python, with no native frame below the called function, so the interpreter can
exit while a function runs. The native `calls` module decides how many there are, and starts them.
"""

# Imported here, not on first use: a child that is forked during an import would wait forever.
import threading
from contextlib import suppress
from contextvars import Context

from . import _hubs
from ._quorlock import Worker


def start(worker: Worker) -> None:
    """Starts a thread that runs the calls of `worker`.

    Raises RuntimeError if the system cannot start another thread.
    """
    # An empty context: a thread may inherit that of its caller, with the caller's lease and
    # variables.
    run, arguments = Context().run, (_work, worker)
    start_thread = _hubs.start_real_thread()
    if start_thread is None:
        threading.Thread(target=run, args=arguments, name=worker.name, daemon=True).start()
    else:
        start_thread(run, arguments)


def _work(worker: Worker) -> None:
    # gevent and eventlet start threads without a name.
    threading.current_thread().name = worker.name
    while True:
        function, arguments, another = worker.next()
        if another is not None:
            # Another thread keeps a slow call from delaying the next ones. If it cannot be started,
            # the next calls wait.
            with suppress(RuntimeError):
                start(another)
        try:
            function(*arguments)
        except BaseException as error:
            worker.report(function, error)
        # Delete these before waiting for the next call, because they may refer to a lease.
        del function, arguments, another
