"""Deliberate errors. Each must make the proof fail, in the named steps and nowhere else.

A control also has a real run, if there is one: steps from the beginning after which a property is
violated. The rules as they are must refuse the same steps. A control without a run breaks the
inductive argument only, as far as we know; the rule that it breaks may be stricter than necessary.
"""

from __future__ import annotations

from proof import properties
from proof.changes import both_changes, but, without, without_axiom
from proof.control import Control
from proof.logic import both, changed, choose, implies, mapped, negated
from proof.mode_controls import MODE_CONTROLS
from proof.runs import LOOKS, ROUND, violates
from proof.semaphore_controls import SEMAPHORE_CONTROLS
from proof.step import ASSUMED
from proof.systems import GUARD, KEPT, MEMORY

PAUSE = "the pause is not negative"
LATE = "it was not answered before the lease was detached"

CONTROLS = (
    Control(
        "no drift allowance",
        "A lease may end after its keys expire.",
        MEMORY,
        without_axiom("a lease ends before its keys"),
        {
            "grant": {"promises_are_kept"},
            "confirm": {"promises_are_kept"},
            "swap": {"promises_are_kept"},
            "upgrade": {"promises_are_kept"},
        },
        f"{ROUND} tick expire expire {ROUND}",
    ),
    Control(
        "a pause shortens keys",
        "A node counts a ttl from before it has read its clock: a pause in between shortens it.",
        MEMORY,
        both_changes(
            *(without(step, PAUSE) for step in ("grant", "confirm", "swap", "upgrade")),
        ),
        {
            "grant": {"promises_are_kept"},
            "confirm": {"promises_are_kept"},
            "swap": {"promises_are_kept"},
            "upgrade": {"promises_are_kept"},
        },
        f"{ROUND} tick expire expire {ROUND}",
    ),
    Control(
        "majorities that do not overlap",
        "Two majorities need not share a node: a quorum one too small, or different node lists.",
        MEMORY,
        without_axiom("any two majorities share a node"),
        {"property": {"exclusion", "one_adopter", "one_valid_adopter"}},
        "begin_round grant count_vote fix_fence win begin_round grant count_vote fix_fence win",
    ),
    Control(
        "end counted from the answer",
        "The validity end counts from the last vote, not from before the first request.",
        MEMORY,
        both_changes(
            without("win", "the validity end is ahead"),
            but(
                "win",
                after=lambda t, s, attempt, **_: t.but(
                    end=changed(
                        s.end,
                        (attempt,),
                        s.client_clock(s.client(attempt)) + s.validity(attempt),
                    ),
                    end_at=changed(s.end_at, (attempt,), s.now + s.validity(attempt)),
                ),
            ),
        ),
        {"win": {"leases_are_promised"}},
        "begin_round grant grant count_vote count_vote fix_fence tick win "
        f"tick expire expire {ROUND}",
    ),
    Control(
        "EXTEND of a missing key",
        "A node confirms an extension though it does not have the key.",
        MEMORY,
        without("confirm", "the node has the keys"),
        {"confirm": {"one_live_promise", "promises_are_kept"}},
        f"{ROUND} begin_extension tick confirm confirm count_confirmation count_confirmation "
        f"extend tick expire {ROUND}",
    ),
    Control(
        "extension by a minority",
        "Confirmations of less than a majority move the validity end.",
        MEMORY,
        without(
            "extend",
            "those that confirm are a majority",
            ASSUMED + "(c) a majority remembers its confirmation",
        ),
        {"extend": {"keepers_are_a_majority", "leases_are_promised"}},
        f"{ROUND} begin_extension tick confirm count_confirmation extend tick expire {ROUND}",
    ),
    Control(
        "late EXTEND shortens",
        "An EXTEND that arrives late shortens the life of the key.",
        MEMORY,
        but(
            "confirm",
            after=lambda t, s, node, extension, **_: t.but(
                expires=mapped(
                    s.expires,
                    lambda other, resource, a: choose(
                        both(other == node, a == s.lease(extension), s.uses(a, resource)),
                        s.node_clock(node) + s.extension_ttl(extension),
                        s.expires(other, resource, a),
                    ),
                )
            ),
        ),
        {"confirm": {"promises_are_kept"}},
        f"{ROUND} begin_extension begin_extension tick confirm confirm count_confirmation "
        f"count_confirmation extend confirm tick expire {ROUND}",
        sizes={"Extension": 2},
    ),
    Control(
        "delete of a held key",
        "RELEASE or UNDO is sent while the lease is held.",
        MEMORY,
        without("delete", "the client gave it up"),
        {"delete": {"promises_are_kept"}},
        f"{ROUND} delete {ROUND}",
    ),
    Control(
        "RELEASE shortens a held key",
        "A RELEASE that keeps the key for a time is sent while the lease is held.",
        MEMORY,
        without("retain", "the client gave it up"),
        {"retain": {"promises_are_kept"}},
        f"{ROUND} retain tick expire {ROUND}",
    ),
    Control(
        "HEAL overwrites",
        "HEAL replaces the key of another client.",
        MEMORY,
        but(
            "heal",
            lambda s, **_: {"no other token is in the way": True},
            lambda t, s, node, attempt, **_: t.but(
                holds=mapped(
                    t.holds,
                    lambda other, resource, a: both(
                        t.holds(other, resource, a),
                        implies(both(other == node, s.uses(attempt, resource)), a == attempt),
                    ),
                )
            ),
        ),
        {"heal": {"promises_are_kept"}},
        f"{ROUND} finish delete delete {ROUND} heal delete {ROUND}",
    ),
    Control(
        "one of several resources",
        "A node grants several resources if one of them is free.",
        MEMORY,
        but(
            "grant",
            lambda s, node, attempt, **_: {
                "all resources are free": s.every(
                    lambda b: negated(s.holds(node, s.first(attempt), b))
                )
            },
        ),
        {"grant": {"keys_exclude", "one_live_promise"}},
        f"{ROUND} {ROUND}",
        sizes={"Resource": 2},
    ),
    Control(
        "shared beside exclusive",
        "A node grants a shared lease while an exclusive one has the key.",
        MEMORY,
        but(
            "grant",
            lambda s, node, attempt, **_: {
                "all resources are free": s.every(
                    lambda resource, b: implies(
                        both(s.uses(attempt, resource), s.holds(node, resource, b)),
                        both(b != attempt, negated(s.writer(attempt, resource))),
                    )
                )
            },
        ),
        {"grant": {"keys_exclude", "one_live_promise", "promises_are_kept"}},
        f"{ROUND} {ROUND}",
    ),
    Control(
        "(c) broken",
        "Nodes forget what a valid lease needs, without the guard.",
        MEMORY,
        without("forget", ASSUMED + "(c) a majority remembers what it granted"),
        {"forget": {"leases_are_promised"}},
        f"{ROUND} forget {ROUND}",
    ),
    Control(
        "clock set forward",
        "A node's clock is set forward, and a valid lease needs the node.",
        MEMORY,
        without("set_clock", ASSUMED + "(c) a majority remembers what it granted"),
        {"set_clock": {"leases_are_promised"}},
        f"{ROUND} set_clock expire {ROUND}",
    ),
    Control(
        "no guard",
        "Votes of a node that has just restarted count.",
        GUARD,
        without("count_vote", "the guard is over"),
        {"count_vote": {"counted_votes_are_trusted"}},
        f"{LOOKS} {ROUND} forget {LOOKS} {ROUND}",
    ),
    Control(
        "guard without extensions",
        "Confirmations of a node that has just restarted count.",
        GUARD,
        without("count_confirmation", "the guard is over"),
        {"count_confirmation": {"counted_confirmations_are_trusted"}},
        f"{LOOKS} {LOOKS} begin_round begin_round grant grant count_vote count_vote fix_fence win "
        "grant count_vote tick forget heal look begin_extension confirm confirm "
        "count_confirmation count_confirmation extend tick expire grant count_vote fix_fence win",
    ),
    Control(
        "guard by arrival",
        "A vote counts if the guard is over when it arrives.",
        GUARD,
        but(
            "count_vote",
            lambda s, node, attempt: {
                "the guard is over": implies(
                    s.guarded,
                    s.guard_clock(s.client(attempt)) >= s.counts_from(s.client(attempt), node),
                )
            },
        ),
        {"count_vote": {"counted_votes_are_trusted"}},
    ),
    Control(
        "restart not noticed",
        "A client that knows a node ignores that the node's memory is another one.",
        GUARD,
        but(
            "look",
            after=lambda t, s, client, node, **_: t.but(
                counts_from=changed(
                    s.counts_from,
                    (client, node),
                    choose(
                        s.looked(client, node),
                        s.counts_from(client, node),
                        t.counts_from(client, node),
                    ),
                )
            ),
        ),
        {"look": {"counted_extensions_are_late", "counted_rounds_are_late", "guards_last"}},
        f"{LOOKS} look {ROUND} forget look {ROUND}",
    ),
    Control(
        "restart without reconnect",
        "A node restarts, and its votes count before a client examines it again.",
        GUARD,
        without("count_vote", ASSUMED + "a node that restarts is examined before its votes count"),
        {"count_vote": {"counted_votes_are_trusted"}},
        f"{LOOKS} look {ROUND} forget {ROUND}",
    ),
    Control(
        "uptime too long",
        "A node reports a longer uptime than is true.",
        GUARD,
        without("look", ASSUMED + "the node reports no more than its true uptime"),
        {"look": {"counted_extensions_are_late", "counted_rounds_are_late", "guards_last"}},
        f"{LOOKS} {ROUND} forget {LOOKS} {ROUND}",
    ),
    Control(
        "late votes",
        "A round is won after its validity end.",
        GUARD,
        without("win", "the validity end is ahead"),
        {"win": {"fences_grow", "leases_are_stored", "valid_fences_are_largest"}},
        f"{LOOKS} begin_round grant grant count_vote count_vote fix_fence tick expire expire "
        f"{ROUND} win",
        violates(properties.fences),
    ),
    Control(
        "late extension",
        "An extension is accepted after the old validity end.",
        GUARD,
        without("extend", "the lease is valid"),
        {"extend": {"valid_fences_are_largest"}},
        f"{LOOKS} {ROUND} begin_extension tick expire expire {ROUND} finish delete delete "
        "heal heal confirm confirm count_confirmation count_confirmation extend",
        violates(properties.valid_fence),
    ),
    Control(
        "no RAISE",
        "A round is won though no majority stores its fence.",
        GUARD,
        but(
            "fix_fence",
            after=lambda t, s, attempt, weighed, **_: t.but(
                stored=mapped(
                    s.stored,
                    lambda node, a: choose(
                        a == attempt, s.member(node, weighed), s.stored(node, a)
                    ),
                )
            ),
        ),
        {"fix_fence": {"grants_after_a_store_are_larger", "stored_fences_are_marked"}},
        f"{LOOKS} look begin_round grant tick expire begin_round grant grant count_vote count_vote "
        f"fix_fence win finish delete delete {ROUND}",
        violates(properties.fences),
    ),
    Control(
        "first fence",
        "The fence is that of any vote, not the largest.",
        GUARD,
        without("fix_fence", "no other is larger"),
        {"fix_fence": {"fences_are_largest"}},
        f"{LOOKS} look begin_round grant tick expire begin_round grant grant count_vote count_vote "
        "fix_fence raise_fence win finish delete delete "
        "begin_round grant grant count_vote count_vote fix_fence raise_fence win",
        violates(properties.fences),
    ),
    Control(
        "RAISE of an uncounted vote",
        "A node acknowledges RAISE though its vote was not counted into the fence.",
        GUARD,
        without("raise_fence", "the node's vote was counted into it"),
        {"raise_fence": {"fences_are_largest"}},
    ),
    Control(
        "no floor",
        "A node without a counter grants a small fence.",
        GUARD,
        without("grant", "the fence is not below the floor"),
        {
            "grant": {
                "grants_after_a_store_are_larger",
                "live_grants_are_last",
                "trusted_fences_differ",
            }
        },
        f"{LOOKS} {ROUND} tick forget forget {LOOKS} tick {ROUND}",
        violates(properties.fences),
    ),
    Control(
        "guard below the clocks' difference",
        "Counters are lost, and the guard is shorter than the difference between wall clocks.",
        GUARD,
        without_axiom(
            "the guard exceeds the differences between wall clocks, if counters can be lost"
        ),
        {
            "grant": {
                "grants_after_a_store_are_larger",
                "live_grants_are_last",
                "trusted_fences_differ",
            },
            "swap": {
                "adopters_grants_are_larger",
                "grants_after_a_store_are_larger",
                "live_grants_are_last",
                "trusted_fences_differ",
            },
            "upgrade": {
                "grants_after_a_store_are_larger",
                "live_grants_are_last",
                "trusted_fences_differ",
            },
        },
        f"{LOOKS} {ROUND} tick forget forget {LOOKS} tick {ROUND}",
        violates(properties.fences),
    ),
    Control(
        "short memory of counters",
        "A counter expires before the wall clock has passed it by more than clocks are set back.",
        GUARD,
        without_axiom("a counter is kept longer than clocks are set back"),
        {"expire_counter": {"forgotten_counters_are_passed"}},
        f"{LOOKS} {ROUND} tick finish delete delete expire_counter expire_counter tick {ROUND}",
        violates(properties.fences),
    ),
    Control(
        "wall clock set back too far",
        "A node's wall clock is set back by more than the memory allows.",
        GUARD,
        without("tick", ASSUMED + "no node's wall clock is set back too far"),
        {"tick": {"wall_clocks_are_near_their_top"}},
        f"{LOOKS} {ROUND} tick finish delete delete expire_counter expire_counter tick {ROUND}",
        violates(properties.fences),
    ),
    Control(
        "wall clocks that agree, but are wrong",
        "Counters are lost, and the wall clocks of all nodes are set back together.",
        GUARD,
        but(
            "tick",
            lambda s, walls, **_: {
                ASSUMED + "the nodes' wall clocks are right, if counters can be lost": s.every(
                    lambda node, other: walls(node) - walls(other) <= s.spread
                )
            },
        ),
        {"tick": {"wall_clocks_are_right"}},
        f"{LOOKS} {ROUND} tick forget forget {LOOKS} tick {ROUND}",
        violates(properties.fences),
    ),
    Control(
        "TRANSFER of a held lease",
        "A lease is taken over before it has ended for its holder.",
        MEMORY,
        without("begin_round", "a lease that is taken over has ended"),
        {"begin_round": {"parents_have_ended"}},
        f"{ROUND} begin_round swap swap count_vote count_vote fix_fence win",
    ),
    Control(
        "TRANSFER without comparing",
        "A node swaps keys that do not have the parent's token.",
        MEMORY,
        without("swap", "the node has the parent's keys", "no other token is in the way"),
        {"swap": {"keys_exclude", "nodes_swap_once", "one_live_promise", "promises_are_kept"}},
        f"{ROUND} finish begin_round swap swap count_vote count_vote fix_fence win "
        "begin_round swap swap count_vote count_vote fix_fence win",
    ),
    Control(
        "a hand-over that a node forgets",
        "A node loses its last writes, and gets keys back that it had handed over.",
        MEMORY,
        without("forget", ASSUMED + "no hand-over is lost, unless that is allowed"),
        {"forget": {"adopters_swapped", "swapped_keys_stay_away"}},
        "begin_round grant grant grant count_vote count_vote fix_fence win finish "
        "begin_round swap swap count_vote count_vote fix_fence win finish forget "
        "begin_round swap swap count_vote count_vote fix_fence win",
        violates(properties.one_adopter),
    ),
    Control(
        "late HEAL after hand-over",
        "A late HEAL of the parent's token is applied where all its requests had been answered.",
        GUARD,
        without("heal", LATE),
        {"heal": {"swapped_keys_stay_away"}},
        f"{LOOKS} look begin_round grant grant grant count_vote count_vote fix_fence win finish "
        "begin_round swap swap count_vote count_vote fix_fence win finish delete heal "
        "begin_round swap swap count_vote count_vote fix_fence win",
        violates(properties.one_adopter),
    ),
    Control(
        "late ACQUIRE after hand-over",
        "A late ACQUIRE of the parent's token is applied after the adopter has left.",
        GUARD,
        without("grant", LATE),
        {"grant": {"swapped_keys_stay_away"}},
        f"{LOOKS} look {ROUND} heal finish begin_round swap swap count_vote count_vote fix_fence "
        "win finish delete grant begin_round swap swap count_vote count_vote fix_fence win",
        violates(properties.one_adopter),
    ),
    Control(
        "adoption with any votes",
        "An adopter counts nodes to which a request of the giver is under way.",
        KEPT,
        without("count_vote", "it may vote on an adoption"),
        {"count_vote": {"winners_swapped"}},
        "begin_round grant grant grant count_vote count_vote fix_fence win finish "
        "begin_round swap swap count_vote count_vote fix_fence win finish delete heal "
        "begin_round swap swap count_vote count_vote fix_fence win",
        violates(properties.one_adopter),
    ),
    Control(
        "GIVE BACK after a win",
        "The keys of a lease that was adopted and released are given back to other adopters.",
        KEPT,
        without("give_back", "it was not won"),
        {"give_back": {"adopters_swapped", "swapped_keys_stay_away", "winners_swapped"}},
        f"{ROUND} finish begin_round swap swap count_vote count_vote fix_fence win finish "
        "give_back give_back begin_round swap swap count_vote count_vote fix_fence win",
        violates(properties.one_adopter),
    ),
    Control(
        "GIVE BACK of a round that goes on",
        "A node gives the keys back while the adopter may still win.",
        KEPT,
        without("give_back", "the client gave it up"),
        {"give_back": {"adopters_swapped", "promises_are_kept"}},
        f"{ROUND} finish begin_round swap swap count_vote count_vote fix_fence give_back give_back "
        "win begin_round swap swap count_vote count_vote fix_fence win",
        violates(properties.one_valid_adopter),
    ),
    *MODE_CONTROLS,
    *SEMAPHORE_CONTROLS,
)
