"""The `quorlock` command: the native part does all of it, in this process."""

import sys

from ._quorlock import command_line


def main() -> int:
    """Runs the command line of this process; returns its exit status."""
    return command_line(["quorlock", *sys.argv[1:]])
