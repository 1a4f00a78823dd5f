"""The Python client of test_thawed.py: runs one JSON command per line of stdin."""

import json
import sys
from typing import Any

import quorlock

client = quorlock.Client(sys.argv[1:])
leases: dict[str, quorlock.Lease] = {}


def hold(resource: str, lease: quorlock.Lease) -> dict[str, Any]:
    leases[resource] = lease
    return {"fence": lease.fence, "token": lease.token, "slots": list(lease.slots)}


def run(command: dict[str, Any]) -> Any:
    options = command.get("options", {})
    match command:
        case {"lock": resource}:
            return hold(resource, client.lock(resource, **options).acquire())
        case {"permit": resource, "as": name}:
            return hold(name, client.semaphore(resource, **options).acquire())
        case {"extend": resource}:
            return leases[resource].extend()
        case {"release": resource}:
            return leases[resource].release()
        case {"locked": resource}:
            return client.lock(resource).locked()
        case _:
            raise ValueError(f"there is no command {command}")


for line in sys.stdin:
    try:
        answer = {"ok": run(json.loads(line))}
    except quorlock.QuorlockError as error:
        answer = {"error": type(error).__name__, "nodes": str(error)}
    print(json.dumps(answer), flush=True)
client.close()
