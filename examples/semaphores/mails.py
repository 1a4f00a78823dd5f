r"""Sends mails through an API that accepts five requests per second, counted over all processes.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
  GATEWAY_URL=http://127.0.0.1:8900 python mails.py
"""

import asyncio
import os

import httpx
import quorlock


async def main() -> None:
    async with (
        quorlock.Client(ttl=3, wait=60) as client,  # uses the nodes in QUORLOCK_NODES
        httpx.AsyncClient(base_url=os.environ["GATEWAY_URL"]) as http,
    ):
        # A permit that was released is free one second later.
        mails = client.semaphore("api:mails", limit=5, keep=1)

        async def send(number: int) -> None:
            async with mails:
                answer = await http.post("/mails", json={"mail": number})
            answer.raise_for_status()
            print(f"mail {number} sent")

        await asyncio.gather(*map(send, range(10)))


asyncio.run(main())
