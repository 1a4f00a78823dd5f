"""Texts of errors about idioms of other libraries, and about decorators: what to write instead.

`_lock`, `_lease` and `_election` call this module, only to raise an error.
"""

from typing import TYPE_CHECKING

from ._options import LockOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ALIASES = {
    "owned": "valid",
    "is_held": "valid",
    "reacquire": "extend",
    "refresh": "extend",
    "renew": "extend",
    "do_release": "release",
    "unlock": "release",
}
"""What other libraries call the members of a lease."""

_ARGUMENTS = {
    "blocking": "`try_acquire()` tries once, and `acquire()` waits for at most `wait`",
    "timeout": "write `acquire(wait=…)`, in seconds; `wait=None` waits forever",
    "blocking_timeout": "write `acquire(wait=…)`, in seconds; `wait=None` waits forever",
    "sleep": "leave it out, because waiters are notified and do not poll",
    "token": "leave it out, because each lease has a token of its own",
}
"""Arguments of `acquire` in other libraries."""

_FRAMEWORKS = {
    "apply_async": "a Celery task",
    "call_local": "a Huey task",
    "callback": "a command",
    "defer_async": "a Procrastinate task",
    "kiq": "a taskiq task",
    "send_with_options": "a dramatiq actor",
    "_fixture_function": "a pytest fixture",
    "_pytestfixturefunction": "a pytest fixture",
    "__temporal_activity_definition": "a Temporal activity",
}
"""What frameworks make of a function, by an attribute that it has. They call the function inside
without the lock around it."""


def wrong_target(target: object) -> TypeError | None:
    """Returns the error about what a lock must not decorate: anything whose body it would not
    protect. Returns None for functions and other callable objects."""
    if isinstance(target, type):
        return TypeError(
            f"a lock decorates a function, not {target!r}, whose methods would run without it: "
            "decorate the methods"
        )
    if not callable(target):
        return TypeError(
            f"a lock decorates a function, not {target!r}: write it directly above `def`, below "
            "all other decorators"
        )
    # The class, because objects such as mocks have every attribute. A proxy shows that of its task.
    members = {*dir(target.__class__), *getattr(target, "__dict__", ())}
    made = next((made for name, made in _FRAMEWORKS.items() if name in members), None)
    if made is None:
        return None
    return TypeError(
        f"a lock around {made} is not held when {target!r} is run by its framework: write it "
        "directly above `def`, below all other decorators"
    )


def missing_attribute(owner: object, name: str, lease: type[object]) -> AttributeError:
    """Returns the error about an attribute that a lock, semaphore or lease does not have. `lease`
    is the class of leases."""
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    member = _ALIASES.get(name, name)
    if not member.startswith("_") and hasattr(lease, member):
        form = f"lease.{member}()" if callable(getattr(lease, member)) else f"lease.{member}"
        acquire = "" if isinstance(owner, lease) else "`with lock as lease:`, then "
        text += f"; write {acquire}`{form}`"
    return AttributeError(text, name=name, obj=owner)


def wrong_arguments(
    owner: object, given: "Sequence[object]", named: "Mapping[str, object]"
) -> TypeError:
    """Returns the error about arguments that `acquire` of a lock or semaphore does not take."""
    names = ["wait", "permits"] if hasattr(owner, "permits") else ["wait"]
    if given and not isinstance(given[0], bool):
        # Shows only what may be a duration or a number of permits: anything else may be a secret.
        shown = repr(given[0]) if isinstance(given[0], int | float) else "…"
        forms = " or ".join(f"`acquire({name}={shown})`" for name in names)
        return TypeError(f"acquire() takes its arguments by name: write {forms}")
    name = "blocking" if given else next(iter(named))
    if name in LockOptions.__annotations__:
        hint = f"it is an option of the lock: write `client.lock(…, {name}=…)`"
    else:
        hint = _ARGUMENTS.get(name, f"it can be {', '.join(names)}")
    return TypeError(f"acquire() got an unexpected argument {name!r}: {hint}")


def no_truth_value(owner: object, instead: str) -> TypeError:
    """Returns the error about `if lock:`, whose body would run without the lock."""
    return TypeError(
        f"{type(owner).__name__} objects have no truth value, because `if` acquires nothing: "
        f"{instead}; to compare it with None, write `is not None`"
    )
