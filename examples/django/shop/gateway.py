"""Calls external services over HTTP."""

import json
import urllib.request

from django.conf import settings


def post(path: str, body: dict[str, object], key: str) -> None:
    """The lock excludes other callers; the key makes a repetition after a crash harmless."""
    request = urllib.request.Request(
        settings.GATEWAY_URL + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": key},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
