"""Counts the connections of another process. Linux only."""

from __future__ import annotations

from pathlib import Path

ESTABLISHED = "01"


def connections(pid: int) -> int:
    """Returns the number of established TCP connections of the process; 0 if this is not Linux."""
    process = Path(f"/proc/{pid}")
    if not (process / "net/tcp").exists():
        return 0
    # The tables list all connections of the network namespace: the state in the fourth column, and
    # the inode in the tenth. The process owns a connection if it has a file descriptor with that
    # inode.
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        if (process / "net" / table).exists()
        for line in (process / "net" / table).read_text().splitlines()[1:]
    ]
    open_ones = {f"socket:[{line[9]}]" for line in lines if line[3] == ESTABLISHED}
    return len(open_ones & {_target(descriptor) for descriptor in (process / "fd").iterdir()})


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""  # the descriptor was closed in the meantime
