"""MkDocs hook: adds synonyms and ranks to the search index.

With synonyms, words of other libraries find a page. The pages stay as they are: synonyms are tags,
which the search finds and the site does not show.
"""

from __future__ import annotations

import logging
from typing import Any

SYNONYMS = {
    "concepts.md": (
        "mutex, mutual exclusion, redlock, critical section, majority, fencing token, split brain"
    ),
    "leases.md": (
        "keepalive, keep alive, renew, renewal, auto-renew, lock extension, expire, lost lock, "
        "fork, suspend"
    ),
    "long-jobs.md": "watchdog, liveness, hang, hung, stuck, progress, long-running, sd_notify",
    "waiting.md": (
        "blocking, queue, fairness, FIFO, retry, polling, pubsub, notification, try lock, "
        "non-blocking, starvation"
    ),
    "semaphores.md": "counting semaphore, permits, concurrency limit, max concurrency, throttle",
    "serve.md": "Go, golang, C#, .NET, StackExchange.Redis, Laravel, Rails, Jedis, daemon, sidecar",
    "recipes/semaphores.md": (
        "Snowflake, id generator, worker id, rate limit, rate limiter, requests per second, "
        "per tenant"
    ),
    "recipes/once.md": "idempotency, idempotent, memoize, single flight, cache stampede, dogpile",
    "recipes/frameworks.md": "Flask, aiohttp, RQ, Dramatiq, decorator",
    "sizing.md": "ttl, expiry, lock timeout, lease time, expire time, how long",
    "when-not-to-use.md": (
        "reentrant, read-write lock, RWLock, rate limit, shared lock, advisory lock"
    ),
    "comparison.md": "etcd, ZooKeeper, Consul, Redisson, alternatives",
    "troubleshooting.md": "debug, stuck lock, deadlock, stale lock, force unlock, error message",
    "recipes/leader-election.md": "leader, singleton, primary, standby, failover of workers",
    "recipes/scheduled-jobs.md": "cron, crontab, periodic, scheduler, run once, node-cron",
    "recipes/celery.md": "beat, task queue",
    "observability.md": (
        "metrics, Prometheus, OpenTelemetry, tracing, Grafana, dashboard, logging, monitoring"
    ),
    "runbook.md": "alerts, on-call, incident, pager",
    "connections.md": "TLS, SSL, Sentinel, Cluster, password, ACL, username, unix socket",
    "kubernetes.md": "k8s, Helm, StatefulSet, pods",
    "deployment.md": "ElastiCache, high availability, replicas, persistence, AOF, how many nodes",
    "options.md": "settings, configuration, parameters, defaults, environment variables",
    "errors.md": (
        "exceptions, LockTimeoutError, QuorumError, LeaseLostError, NO_QUORUM, TIMEOUT, LEASE_LOST"
    ),
    "compatibility.md": "supported versions, upgrade, Dragonfly, KeyDB",
    "packages.md": "wheel, Alpine, musl, from source, build",
    "glossary.md": "terms, definitions, vocabulary",
}
"""Words that readers search for, for each page. The search ranks these pages first."""

RANKS = {
    "api/python.md": 2,
    "api/node.md": 2,
    "api/rust.md": 2,
    "decisions.md": 0.05,
    "proof.md": 0.05,
    "verification.md": 0.05,
}
"""Factors of the score that the search gives a page. A name such as `extend` is to find its entry
in the API before pages that explain why it works as it does."""

_log = logging.getLogger("mkdocs.hooks.synonyms")


def on_files(files: Any, config: Any) -> Any:
    """Warns of synonyms and ranks for pages that do not exist."""
    for page in [*SYNONYMS, *RANKS]:
        if files.get_file_from_path(page) is None:
            _log.warning(f"{page} has synonyms or a rank, but does not exist")
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Adds the synonyms of a page to its tags, and sets its rank."""
    if rank := RANKS.get(page.file.src_uri):
        page.meta["search"] = {"boost": rank}
    if words := SYNONYMS.get(page.file.src_uri):
        page.meta["tags"] = [*page.meta.get("tags", []), *words.split(", ")]
    return markdown
