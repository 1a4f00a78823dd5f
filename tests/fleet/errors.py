"""What can go wrong with servers."""


class ServerError(Exception):
    """A server could not be started, or is not running."""


class Unavailable(ServerError):  # noqa: N818 - tests that need it are skipped, none fails
    """This machine lacks what such servers need. The message says what."""
