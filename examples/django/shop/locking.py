"""The client of the lock, and answers to its errors."""

import logging
from collections.abc import Callable

import quorlock
from django.http import HttpRequest, HttpResponse, JsonResponse

log = logging.getLogger(__name__)
locks = quorlock.Client(ttl=5)
"""Nothing is connected before the first lock, and processes that fork may share it: gunicorn's
`--preload` is fine."""

STATUS = {"TIMEOUT": 409, "NO_QUORUM": 503, "LEASE_LOST": 503}


class LockErrors:
    """Answers 409 while somebody else is at it, and 503 when the lock cannot be had or was lost."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, quorlock.QuorlockError) or error.code not in STATUS:
            return None
        if error.code != "TIMEOUT":  # that somebody else is at it is no trouble
            log.warning("%s", error)
        answer = JsonResponse({"error": error.code}, status=STATUS[error.code])
        answer.headers["Retry-After"] = "1"
        return answer
