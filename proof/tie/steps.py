"""What each reported step is: which transitions, with which parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from typing import Any

from proof.state import RESOURCE
from proof.tie.replay import SLACK, UPTIME_ERROR, Refused, Replay
from proof.tie.trace import Step
from proof.tie.units import EPOCH, FAST_BITS, NANOSECOND, RATE_BITS, ROUNDING, nanoseconds

EXCLUSIVE, SHARED = "exclusive", "shared"
"""The modes of a round, for a resource."""

UPGRADE = "upgrade"
"""The mode of a round that is to replace a shared lease: exclusive for all resources."""

PERMIT = re.compile(r"\{.+\}.*:permit:\d+$")
"""The keys of permits. No lock has such a key."""


def perform(replay: Replay, step: Step) -> None:
    """Performs the transitions of a step."""
    handler = HANDLERS.get(step.what)
    if handler is None:
        raise Refused(f"there is no transition for {step.what!r}")
    replay.advance(step.time)
    handler(replay, step)


def _client(step: Step) -> int:
    if step.client is None:
        raise Refused("it does not tell which client it is of")
    return step.client


def process(replay: Replay, step: Step) -> None:
    """A process starts. It has done nothing yet, which needs no transition."""


def look(replay: Replay, step: Step) -> None:
    """A client examined a node."""
    node, memory, uptime, guard, _ = step.details
    if guard != replay.world.guard:
        raise Refused("the clients have different restart guards")
    replay.look_at([node], clients=[_client(step)])
    replay.apply(
        "look",
        client=step.client,
        node=node,
        boot=replay.boots[memory],
        uptime=max(0, uptime - UPTIME_ERROR) * NANOSECOND,
        is_reported=True,
    )


def started(replay: Replay, step: Step) -> None:
    """A node restarted. Clients cannot see whether it forgot anything."""
    node, forgets = step.details
    replay.starts[node] += 1
    if not replay.world.is_guarded:
        if forgets:
            raise Refused("a node forgot although the restart guard is off")
        return
    attempts = {a for (at, _), held in replay.holders.items() if at == node for a in held}
    resources = {resource for at, resource in replay.holders if at == node}
    counters = [key[1] for key in replay.s.counter.entries if key[0] == node]
    replay.look_at([node], {*resources, *counters}, attempts)
    lost = replay.s.counter.default
    replay.apply(
        "forget",
        node=node,
        remembered=lambda resource, a: not forgets and replay.s.holds(node, resource, a),
        expiries=lambda resource, a: replay.s.expires(node, resource, a),
        counters=lambda resource: lost if forgets else replay.s.counter(node, resource),
    )
    replay.boots[f"{node} {replay.starts[node]}"] = replay.s.now


def begin(replay: Replay, step: Step) -> None:
    """A round begins."""
    token, resources, sent, ttl, end, giver, _, *named = step.details
    if token in replay.attempts:
        raise Refused(f"two rounds have the token {token[:8]}")
    check_clock(replay, step.client, sent)
    attempt = len(replay.tokens)
    replay.attempts[token] = attempt
    replay.tokens.append(token)
    replay.resources.append(frozenset(resources))
    if named == [UPGRADE]:
        named = []
        replay.upgrades.add(attempt)
    modes = modes_of(resources, *named)
    replay.shared.append(frozenset(each for each in resources if modes[each] == SHARED))
    replay.limits[attempt] = limit(replay, modes)
    replay.clients[attempt] = _client(step)
    if giver is not None:
        parent = replay.attempt(giver)
        if replay.resources[parent] != replay.resources[attempt]:
            raise Refused("a lease is taken over with other resources")
        if replay.limits[parent] != replay.limits[attempt]:
            raise Refused("a lease is taken over with another limit")
        replay.parents[attempt] = parent
    replay.ttls[attempt] = ttl * NANOSECOND - SLACK
    replay.validities[attempt] = (end - sent) * replay.world.fastest << RATE_BITS
    check_validity(replay, replay.validities[attempt], replay.ttls[attempt])
    replay.votes[attempt] = {}
    replay.raised[attempt] = set()
    replay.open.add(attempt)
    replay.only(attempt)
    # Also the keys by which other rounds have named the same slots.
    slots = {replay.slots[resource] for resource in resources}
    replay.focus.things[RESOURCE] = sorted(key for slot in slots for key in replay.keys[slot])
    replay.apply("begin_round", attempt=attempt)


def modes_of(resources: list[str], mode: Any = EXCLUSIVE) -> dict[str, Any]:
    """Returns the mode of a round for each resource. In the trace, it is that of all resources, or
    an object that has the mode of each. A trace that names none is of an exclusive round."""
    modes = mode if isinstance(mode, dict) else dict.fromkeys(resources, mode)
    if modes.keys() != set(resources) or not all(map(is_mode, modes.values())):
        raise Refused(f"there is no mode {mode!r}")
    return modes


def is_mode(mode: Any) -> bool:
    """Whether a resource has such a mode. That of a permit is its semaphore, the number of its slot
    and the limit of the client."""
    return mode in (EXCLUSIVE, SHARED) or (
        isinstance(mode, list) and list(map(type, mode)) == [str, int, int]
    )


def limit(replay: Replay, modes: dict[str, Any]) -> int:
    """Notes which slot each resource of a round is, and returns the round's limit. A lock is a
    semaphore with one slot."""
    limits = set()
    for resource, mode in modes.items():
        if not isinstance(mode, list) and PERMIT.search(resource):
            raise Refused(f"a round for the permit {resource} names no limit")
        semaphore, slot, most = mode if isinstance(mode, list) else (resource, 0, 1)
        limits.add(most)
        if replay.slots.setdefault(resource, (semaphore, slot)) != (semaphore, slot):
            raise Refused(f"two slots have the key {resource}")
        replay.keys.setdefault((semaphore, slot), set()).add(resource)
    if len(limits) != 1:
        raise Refused(f"a round has the limits {sorted(limits)}")
    return limits.pop()


def check_clock(replay: Replay, client: Any, clock: int) -> None:
    """Checks a reading of a client's clock."""
    shown = (clock - replay.world.clients[client].origin) * NANOSECOND
    # A preempted process read it up to a nanosecond of true time later.
    if not -ROUNDING <= shown - replay.guard_clock(client) <= ROUNDING:
        raise Refused("a client reports another time than its clock shows")


def check_validity(replay: Replay, validity: int, ttl: int) -> None:
    """Checks what the proof assumes of each ttl and its validity."""
    if validity > ttl:
        raise Refused("axiom: it does not hold that a lease ends before its keys")
    if validity > replay.s.guard:
        raise Refused("axiom: it does not hold that the guard is at least the longest validity")
    if validity <= 0:
        raise Refused("axiom: it does not hold that times are positive")


def node(replay: Replay, step: Step) -> None:
    """A node applied a request."""
    at, what, locks, stored, batch = step.details
    for resource, token, *_ in stored:
        expire(replay, at, resource)
        if isinstance(token, list):
            downgrade(replay, at, resource, [reader for reader, _ in token])
    REQUESTS.get(what, unknown)(replay, at, locks, batch)
    for resource, token, left, fence, kept in stored:
        compare(replay, at, resource, token, left)
        compare_fence(replay, at, resource, fence, kept)


def expire(replay: Replay, at: int, resource: str) -> None:
    """Expires the keys of a resource whose time is over, and its counter."""
    for attempt in list(replay.holders.get((at, resource), ())):
        if replay.s.expires(at, resource, attempt) + SLACK <= replay.node_clock(at) + ROUNDING:
            replay.look_at([at], [resource], [attempt])
            replay.apply("expire", node=at, resource=resource, attempt=attempt)


def downgrade(replay: Replay, at: int, resource: str, readers: list[str]) -> None:
    """Downgrades the leases that a node stores as readers, though they began as exclusive ones. Any
    request of a lease that was downgraded does that."""
    for attempt in map(replay.attempt, readers):
        if resource not in replay.shared[attempt] and replay.s.locks(at, resource, attempt):
            replay.around(at, attempt)
            replay.apply("downgrade", node=at, attempt=attempt)


def compare(
    replay: Replay, at: int, resource: str, token: str | list[Any] | None, left: int
) -> None:
    """Compares what a node stores for a resource with the state of the proof. In shared mode, the
    key keeps exclusive rounds out, and it has the tokens of the readers instead of one. A lease
    that was downgraded may still have the key for itself."""
    s, holders = replay.s, replay.holders.get((at, resource), set())
    is_shared = isinstance(token, list)
    readers: list[Any]
    readers = token if isinstance(token, list) else [[token, left]] if token else []
    expected = {replay.attempt(each): remaining for each, remaining in readers}
    if any(
        s.locks(at, resource, attempt) if is_shared else not s.writer(attempt, resource)
        for attempt in expected
    ):
        raise Refused(f"node {at} stores a lease of {resource} in the other mode")
    (replay.read.add if is_shared else replay.read.discard)((at, resource))
    if is_shared and left != max(expected.values(), default=0):
        raise Refused(
            f"node {at} keeps others out of {resource} for another time than readers have"
        )
    if holders != expected.keys():
        names = [[replay.name(each) for each in some] for some in (expected, sorted(holders))]
        raise Refused(
            f"node {at} has the token {names[0]} for resource {resource}, in the proof {names[1]}"
        )
    for attempt in holders:
        remaining = expected[attempt] * NANOSECOND
        later = replay.node_clock(at) + remaining - s.expires(at, resource, attempt)
        if not -ROUNDING <= later <= 2 * SLACK:
            raise Refused(
                f"node {at} keeps {resource} for {nanoseconds(later)} longer than in the proof"
            )


def compare_fence(replay: Replay, at: int, resource: str, fence: int, kept: int) -> None:
    """Compares the fence counter of a resource with the state of the proof."""
    s, counter = replay.s, replay.s.counter(at, resource)
    if fence == 0 and counter != s.counter.default:
        replay.look_at([at], [resource])
        replay.apply("expire_counter", node=at, resource=resource, counter=s.counter.default)
    elif fence and counter != replay.fence(fence):
        other = counter // (1000 * replay.world.fastest << RATE_BITS) + EPOCH
        raise Refused(
            f"node {at} stores the fence {fence} for resource {resource}, in the proof {other}"
        )
    elif fence:
        until = replay.wall(at) + (kept * replay.world.fastest << RATE_BITS)
        if until < s.counter_until(at, resource):
            by = nanoseconds(s.counter_until(at, resource) - until)
            raise Refused(f"node {at} keeps its fence for {resource} {by} too short")


def acquire(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node granted a round, or refused it."""
    granted(replay, "grant", at, locks)


def transfer(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node granted an adopter's round or an upgrade's, or refused it."""
    is_upgrade = replay.attempt(locks[0][0]) in replay.upgrades
    granted(replay, "upgrade" if is_upgrade else "swap", at, locks)


def granted(replay: Replay, transition: str, at: int, locks: list[Any]) -> None:
    """A node granted a round, if there is a fence."""
    ((token, ttl, proposal, fence),) = locks
    attempt = replay.attempt(token)
    if fence is None:
        return
    if ttl * NANOSECOND - SLACK != replay.ttls[attempt]:
        raise Refused("the ttl of a request is not that of its round")
    largest = max(replay.resources[attempt], key=lambda resource: replay.s.counter(at, resource))
    replay.around(at, attempt)
    replay.apply(
        transition,
        node=at,
        attempt=attempt,
        fence=replay.fence(fence),
        proposal=replay.fence(proposal),
        resource=largest,
        pause=0,
    )


def raise_fence(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node raised a fence."""
    ((token, fence, is_done),) = locks
    if not is_done:
        return
    attempt = replay.attempt(token)
    if replay.s.fence(attempt) != replay.fence(fence):
        raise Refused("the fence of a RAISE is not that of its round")
    replay.around(at, attempt)
    replay.apply("raise_fence", node=at, attempt=attempt)


def give_back(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node gave the keys of a lost adopter or upgrade back."""
    ((token, left, _),) = locks
    attempt = replay.attempt(token)
    if not left:
        delete(replay, at, attempt)
    elif any(attempt in replay.holders.get((at, each), ()) for each in replay.resources[attempt]):
        replay.around(at, attempt)
        replay.apply("give_back", node=at, attempt=attempt, remaining=left * NANOSECOND - SLACK)


def release(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node deleted the keys of a round, or keeps them for a time."""
    ((token, kept, _, *modes),) = locks
    attempt = replay.attempt(token)
    # A request from before a downgrade finds no reader.
    shared = modes[0] if modes else replay.shared[attempt]
    missed = {each for each in replay.resources[attempt] if (at, each) in replay.read}
    delete(replay, at, attempt, kept, missed - set(shared))


def delete(
    replay: Replay,
    at: int,
    attempt: int,
    kept: int | None = None,
    but: Set[str] = frozenset(),
) -> None:
    """A node deleted the keys that have the token of an attempt, or keeps them for a time: those of
    all resources `but` some."""
    for resource in replay.resources[attempt] - but:
        if attempt not in replay.holders.get((at, resource), ()):
            continue
        replay.look_at([at], [resource], [attempt])
        key = {"node": at, "resource": resource, "attempt": attempt}
        if kept is None:
            replay.apply("delete", **key)
        else:
            replay.apply("retain", **key, remaining=kept * NANOSECOND - SLACK)


def downgrade_request(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node applied DOWNGRADE. `downgrade` has done what it did."""


def extend(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node extended leases."""
    for (token, ttl, is_done), begun in zip(locks, replay.batches[batch], strict=True):
        attempt = replay.attempt(token)
        if (attempt, ttl) != (begun[0], begun[2]):
            raise Refused("a request extends another lease, or for longer, than it was sent for")
        if is_done:
            # Extensions that began together, with the same ttl, are alike: applied in order.
            alike = replay.extensions[begun]
            extension = next((x for x in alike if not replay.s.applied(at, x)), alike[0])
            replay.around(at, attempt)
            replay.focus.things["Extension"] = [extension]
            replay.apply("confirm", node=at, extension=extension, pause=0)


def heal(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """A node repaired leases."""
    for token, ttl, fence, healed in locks:
        attempt = replay.attempt(token)
        resources = replay.resources[attempt]
        held = {each for each in resources if attempt in replay.holders.get((at, each), ())}
        if healed in ("Clean", "Passed") and held != resources:
            if replay.s.fence(attempt) != replay.fence(fence):
                raise Refused("the fence of a HEAL is not that of its lease")
            if attempt in replay.parents:
                delete(replay, at, replay.parents[attempt], but=held)
            replay.around(at, attempt)
            replay.apply("heal", node=at, attempt=attempt, remaining=ttl * NANOSECOND - SLACK)


def unknown(replay: Replay, at: int, locks: list[Any], batch: int) -> None:
    """Requests that change nothing."""
    raise Refused("a request that reads has changed what a node stores")


def round_event(replay: Replay, step: Step) -> None:
    """A round handled an event."""
    token, event, at, value, raised, undo, outcome = step.details
    s, attempt = replay.s, replay.attempt(token)
    replay.only(attempt)
    is_open = not (s.fixed(attempt) or s.won(attempt) or s.over(attempt))
    if event == "vote" and isinstance(value, int) and is_open:
        replay.apply("count_vote", node=at, attempt=attempt)
        if replay.s.vote_fence(at, attempt) != replay.fence(value):
            raise Refused("a client counts another fence than the node granted")
        replay.votes[attempt][at] = value
    if event == "raised" and value is True:
        replay.raised[attempt].add(at)
    if raised:
        fix(replay, attempt, raised[1])
        if set(raised[0]) != set(replay.votes[attempt]):
            raise Refused("the fence is raised on other nodes than those that were counted")
    if outcome and outcome[0] == "won" and attempt in replay.upgrades:
        # It is no lease before the shared one has ended.
        replay.won[attempt] = outcome[1:]
    elif outcome and outcome[0] == "won":
        won(replay, step, attempt, outcome[1], outcome[2])
    elif event == "abandon" or outcome or undo:
        if s.won(attempt) and not s.over(attempt):
            raise Refused("a round is undone while its lease is held")
        if not s.over(attempt):
            replay.apply("finish", attempt=attempt)


def fix(replay: Replay, attempt: int, fence: int) -> None:
    """The fence of a round is decided."""
    votes = replay.votes[attempt]
    largest = max(votes, key=lambda node: votes[node], default=0)
    replay.only(attempt)
    replay.apply(
        "fix_fence",
        node=largest,
        attempt=attempt,
        weighed=frozenset(votes),
        fence=replay.fence(fence),
    )


def won(replay: Replay, step: Step, attempt: int, fence: int, end: int) -> None:
    """A round is won."""
    votes = replay.votes[attempt]
    if replay.s.fixed(attempt):
        storers = frozenset(replay.raised[attempt])
    else:
        fix(replay, attempt, fence)
        storers = frozenset(node for node, each in votes.items() if each == fence)
    if replay.s.fence(attempt) != replay.fence(fence):
        raise Refused("the lease has another fence than its round")
    replay.only(attempt)
    quorum = frozenset(votes)
    replay.apply("win", attempt=attempt, quorum=quorum, keepers=quorum, storers=storers)
    check_end(replay, step.client, attempt, end)


def check_end(replay: Replay, client: Any, attempt: int, end: int) -> None:
    """Checks the validity end that a client has for a lease."""
    shown = (end - replay.world.clients[client].origin) * replay.world.fastest << RATE_BITS
    if not -2 * ROUNDING <= shown - replay.s.end(attempt) <= 2 * ROUNDING:
        by = nanoseconds((shown - replay.s.end(attempt) << FAST_BITS) // replay.world.fastest)
        raise Refused(f"the validity end is {by} later than in the proof")


def extending(replay: Replay, step: Step) -> None:
    """An extension begins."""
    token, sent, ttl, end = step.details
    attempt, extension = replay.attempt(token), len(replay.leases)
    check_clock(replay, step.client, sent)
    replay.extensions.setdefault((attempt, sent, ttl), []).append(extension)
    replay.leases.append(attempt)
    replay.extension_ttls.append(ttl * NANOSECOND - SLACK)
    replay.extension_validities.append((end - sent) * replay.world.fastest << RATE_BITS)
    check_validity(replay, replay.extension_validities[-1], replay.extension_ttls[-1])
    replay.confirmations[extension] = set()
    replay.only(attempt)
    replay.focus.things["Extension"] = [extension]
    replay.apply("begin_extension", extension=extension)


def sending(replay: Replay, step: Step) -> None:
    """Extensions are sent in one request."""
    batch, items = step.details
    replay.batches[batch] = [(replay.attempt(token), sent, ttl) for token, sent, ttl in items]


def answered(replay: Replay, step: Step) -> None:
    """A node's answer to an extension was handled."""
    token, sent, ttl, at, answer, extended, end = step.details
    attempt = replay.attempt(token)
    extension = replay.extensions[attempt, sent, ttl][0]
    replay.only(attempt)
    replay.focus.things["Extension"] = [extension]
    if answer == "Yes":
        replay.apply("count_confirmation", node=at, extension=extension)
        replay.confirmations[extension].add(at)
    if extended == "Confirmed":
        s = replay.s
        if s.asked_clock(extension) + s.extension_validity(extension) > s.end(attempt):
            shown = (end - replay.world.clients[_client(step)].origin) * replay.world.fastest
            if shown << RATE_BITS > s.end(attempt) + 2 * ROUNDING:
                quorum = frozenset(replay.confirmations[extension])
                replay.apply("extend", extension=extension, quorum=quorum, keepers=quorum)
        check_end(replay, step.client, attempt, end)


def healing(replay: Replay, step: Step) -> None:
    """A client begins to repair nodes."""
    if not replay.s.valid(replay.attempt(step.details[0])):
        raise Refused("a lease that has ended repairs nodes")


def downgraded(replay: Replay, step: Step) -> None:
    """The holder of a lease takes it as shared."""
    attempt = replay.attempt(step.details[0])
    replay.only(attempt)
    replay.apply("begin_downgrade", attempt=attempt)


def upgrading(replay: Replay, step: Step) -> None:
    """An upgrade of a lease is asked for. That does not move the end of the lease."""
    token, end = step.details
    check_end(replay, step.client, replay.attempt(token), end)


def upgraded(replay: Replay, step: Step) -> None:
    """The won round of an upgrade is a lease."""
    attempt = replay.attempt(step.details[0])
    if attempt not in replay.won:
        raise Refused("a lease is upgraded although the round was not won")
    won(replay, step, attempt, *replay.won.pop(attempt))


def detached(replay: Replay, step: Step) -> None:
    """A lease ends for its holder, who hands it over."""
    token, silent = step.details
    attempt = replay.attempt(token)
    replay.settled[attempt] = frozenset(replay.nodes) - frozenset(silent)
    finish(replay, step)


def finish(replay: Replay, step: Step) -> None:
    """A lease ends for its holder, or a client forgets a claim."""
    attempt = replay.attempt(step.details[0])
    if not replay.s.over(attempt):
        replay.only(attempt)
        replay.apply("finish", attempt=attempt)


def valid(replay: Replay, step: Step) -> None:
    """A program asked whether its lease is valid."""
    token, is_valid = step.details
    if is_valid and not replay.s.valid(replay.attempt(token)):
        raise Refused("a lease is valid for its holder, but not in the proof")


def killed(replay: Replay, step: Step) -> None:
    """A process is killed. It does nothing any more, which needs no transition."""


HANDLERS: Mapping[str, Callable[[Replay, Step], None]] = {
    "process": process,
    "look": look,
    "started": started,
    "begin": begin,
    "node": node,
    "round": round_event,
    "extending": extending,
    "sending": sending,
    "answered": answered,
    "healing": healing,
    "downgraded": downgraded,
    "upgrading": upgrading,
    "upgraded": upgraded,
    "detached": detached,
    "finish": finish,
    "valid": valid,
    "killed": killed,
}

REQUESTS: Mapping[str, Callable[[Replay, int, list[Any], int], None]] = {
    "acquire": acquire,
    "transfer": transfer,
    "give_back": give_back,
    "raise": raise_fence,
    "release": release,
    "downgrade": downgrade_request,
    "extend": extend,
    "heal": heal,
}
