"""Errors about the servers that tests start."""


class ServerError(Exception):
    """A server could not be started, or is not running."""


class Unavailable(ServerError):  # noqa: N818 - tests that need it are skipped, none fails
    """This machine lacks something that these servers need. The message names it."""
