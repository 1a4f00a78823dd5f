"""The driver of redis-py: `driver.py SOCKET`. ../clients.py describes the protocol."""

from __future__ import annotations

import json
import sys
from typing import Any

import redis

client: Any = redis.Redis(
    unix_socket_path=sys.argv[1], single_connection_client=True, decode_responses=True
)
for line in sys.stdin:
    try:
        reply = client.execute_command(*line.rstrip("\n").split("\t"))
    except redis.RedisError as error:
        reply = {"error": str(error)}
    print(json.dumps(reply), flush=True)
