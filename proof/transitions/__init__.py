"""All transitions, by name. A run of the lock is a sequence of these, in any order."""

from __future__ import annotations

from collections.abc import Mapping

from proof.step import Transition
from proof.transitions.acquiring import begin_round, count_vote, grant, win
from proof.transitions.extending import begin_extension, confirm, count_confirmation, extend
from proof.transitions.fences import expire_counter, fix_fence, raise_fence
from proof.transitions.guard import doubt, look
from proof.transitions.memory import choose_keepers, forget, set_clock
from proof.transitions.modes import begin_downgrade, downgrade, shorten, upgrade
from proof.transitions.releasing import delete, finish, heal, retain
from proof.transitions.time import expire, tick
from proof.transitions.transfer import give_back, swap

TRANSITIONS: Mapping[str, Transition] = {
    transition.__name__: transition
    for transition in (
        tick,
        expire,
        begin_round,
        grant,
        count_vote,
        fix_fence,
        raise_fence,
        win,
        begin_extension,
        confirm,
        count_confirmation,
        extend,
        finish,
        delete,
        retain,
        heal,
        expire_counter,
        forget,
        set_clock,
        choose_keepers,
        look,
        doubt,
        swap,
        give_back,
        shorten,
        begin_downgrade,
        downgrade,
        upgrade,
    )
}
