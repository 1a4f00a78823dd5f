r"""Calls an API that allows four calls at a time, counted over all processes, hosts and languages.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
  GATEWAY_URL=http://127.0.0.1:8900 python caller.py
"""

import asyncio
import os
import signal

import httpx
import quorlock

LIMIT = 4  # the same in caller.js
TASKS = 3


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with (
        quorlock.Client(ttl=3, wait=30) as client,  # uses the nodes in QUORLOCK_NODES
        httpx.AsyncClient(base_url=os.environ["GATEWAY_URL"], timeout=60) as http,
    ):
        stripe = client.semaphore("api:stripe", limit=LIMIT)
        await asyncio.gather(*(work(stripe, http, task, stopping) for task in range(TASKS)))


async def work(
    stripe: quorlock.Semaphore, http: httpx.AsyncClient, task: int, stopping: asyncio.Event
) -> None:
    number = 0
    while not stopping.is_set():
        number += 1
        key = f"python-{os.getpid()}-{task}-{number}"
        try:
            await charge(stripe, http, key)
            print(f"{key} done")
        except quorlock.LockTimeoutError as error:
            print(f"{key} waited too long: {error}")
        except quorlock.LeaseLostError as error:
            print(f"{key} was cut off, and may have had its effect: {error}")


async def charge(stripe: quorlock.Semaphore, http: httpx.AsyncClient, key: str) -> None:
    # Hold the permit for the call only. If the lease is lost, `async with` cancels the call.
    async with stripe:
        charge = {"account": "stripe", "amount": 100}
        answer = await http.post("/charges", json=charge, headers={"Idempotency-Key": key})
    answer.raise_for_status()


asyncio.run(main())
