"""What is done at interpreter exit: see the native module `exit`."""

import atexit
import sys

from ._quorlock import end


class _Last:
    """An exit handler, whose finalizer runs after all other exit handlers.

    `atexit` calls the handlers in reverse order, so those that were registered before `quorlock`
    was imported run after this one. They may acquire and release locks, also on other threads. When
    all have run, and before the interpreter is finalized, `atexit` drops the handlers.
    """

    _end = staticmethod(end)
    _frame = staticmethod(sys._getframe)

    def __init__(self) -> None:
        self._is_exiting = False

    def __call__(self) -> None:
        self._is_exiting = True

    def __del__(self) -> None:
        # In a forked child, `multiprocessing` drops the handlers without calling them.
        if self._is_exiting:
            # Without a caller, the interpreter is about to be finalized, which releases the leases.
            # Otherwise, the program runs the exit handlers itself, such as before `os._exit`.
            self._end(self._frame().f_back is not None)


atexit.register(_Last())
