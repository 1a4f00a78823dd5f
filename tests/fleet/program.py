"""Executes the commands that `tests/servers.py` reads on stdin when it runs as a program."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any, NoReturn, TypeVar

from fleet.cluster import Cluster
from fleet.errors import ServerError
from fleet.group import Group
from fleet.independent import Servers
from fleet.sentinel import Sentinel

Kind = TypeVar("Kind", bound=Group)


class Program:
    """Keeps the started servers, and executes commands on them."""

    def __init__(self) -> None:
        self._started: Group | None = None
        self.stopped = False

    def answer(self, line: str) -> dict[str, Any]:
        """Executes the command in this line, and returns the answer to print."""
        try:
            return {"ok": self._run(json.loads(line))}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """End all processes."""
        if self._started is not None:
            self._started.close()

    @property
    def _servers(self) -> Group:
        if self._started is None:
            raise ServerError("no servers were started yet")
        return self._started

    def _of_kind(self, kind: type[Kind]) -> Kind:
        if not isinstance(self._servers, kind):
            raise ServerError(f"the servers are no {kind.__name__}")
        return self._servers

    def _run(self, request: Any) -> object:
        match request:
            case {"start": _} | {"start_sentinel": _} | {"start_cluster": _}:
                if self._started is not None:
                    raise ServerError("the servers were started already")
                self._started = start(request)
                return self._started.describe()
            case {"freeze": int(index)}:
                self._servers[index].freeze()
            case {"thaw": int(index)}:
                self._servers[index].thaw()
            case {"kill": int(index)}:
                self._servers[index].kill()
            case {"restart": int(index)}:
                self._servers[index].restart()
                return self._servers[index].describe()
            case {"command": [int(index), *args]}:
                return self._servers[index].command(*args)
            case {"fail_over": True}:
                return self._of_kind(Sentinel).fail_over()
            case {"fail_over": int(index)}:
                return self._of_kind(Cluster).fail_over(index)
            case {"begin_move": [str(key), int(to)]}:
                self._of_kind(Cluster).begin_move(key, to)
            case {"end_move": [str(key), int(to)]}:
                self._of_kind(Cluster).end_move(key, to)
            case {"flush": True}:
                self._servers.flush()
            case {"proxy": int(index)}:
                proxy = self._servers.proxy(index)
                number = self._servers.proxies.index(proxy)
                return {"url": proxy.url, "port": proxy.port, "id": number}
            case {"proxy_mode": [int(number), mode]}:
                self._servers.proxies[number].mode = mode
            case {"proxy_delay": [int(number), int(delay) | float(delay)]}:
                self._servers.proxies[number].delay = delay
            case {"keep_logs": True}:
                return str(self._servers.keep_logs())
            case {"stop": True}:
                self.close()
                self.stopped = True
            case _:
                raise ServerError(f"unknown command: {json.dumps(request)}")
        return None


def start(request: dict[str, Any]) -> Group:
    """Starts the kind of servers that the request names."""
    match request:
        case {"start": int(count), **options}:
            return Servers(count, **options)
        case {"start_sentinel": True, **options}:
            return Sentinel(**options)
        case {"start_cluster": True, **options}:
            return Cluster(**options)
    raise ServerError(f"unknown command: {json.dumps(request)}")


def _exit(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    """Answers each line of stdin, until stdin ends or SIGTERM or SIGINT arrives."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    program = Program()
    try:
        for line in sys.stdin:
            print(json.dumps(program.answer(line)), flush=True)
            if program.stopped:
                break
    finally:
        program.close()
