"""The lock client, and the HTTP answers to its errors."""

import logging
from collections.abc import Callable

import quorlock
from django.http import HttpRequest, HttpResponse, JsonResponse

log = logging.getLogger(__name__)
locks = quorlock.Client(ttl=5)
"""It connects on first use and works after a fork, so gunicorn's `--preload` can be used."""

STATUS = {"TIMEOUT": 409, "NO_QUORUM": 503, "LEASE_LOST": 503}


class LockErrors:
    """Answers 409 if another request holds the lock, and 503 if nodes fail or a lease is lost."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, quorlock.QuorlockError) or error.code not in STATUS:
            return None
        if error.code != "TIMEOUT":  # contention is normal
            log.warning("%s", error)
        answer = JsonResponse({"error": error.code}, status=STATUS[error.code])
        answer.headers["Retry-After"] = "1"
        return answer
