"""Changes of leader."""

from __future__ import annotations

from functools import partial

from bench.elections.changes import KINDS, TTL, of
from bench.topic import Topic

TOPIC = Topic({"ttl": lambda: TTL, **{kind: partial(of, kind) for kind in KINDS}})
