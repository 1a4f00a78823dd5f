"""The entry point of the `quorlock` command, which the native module runs in this process."""

import sys

from ._quorlock import command_line


def main() -> int:
    """Runs the command line of this process and returns its exit status."""
    return command_line(["quorlock", *sys.argv[1:]])
