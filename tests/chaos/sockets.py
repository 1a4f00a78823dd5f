"""Which connections a process has, seen from outside; on Linux only."""

from __future__ import annotations

from pathlib import Path

ESTABLISHED = "01"


def connections(pid: int) -> int:
    """How many TCP connections the process has that are open; none where that is not seen."""
    process = Path(f"/proc/{pid}")
    if not (process / "net/tcp").exists():
        return 0
    # All those of its network namespace: the fourth column is the state, the tenth is what a file
    # descriptor points to.
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
        return ""  # closed meanwhile
