"""One of several pods leads. A leader that is stopped hands over to another pod."""

import asyncio
import os
import signal
from contextlib import suppress

import quorlock

NAME = os.environ["POD_NAME"]  # such as scheduler-0
APP, _, NUMBER = NAME.rpartition("-")
# In a rolling update, the pods with larger numbers are updated first.
NUMBERS = reversed(range(int(os.environ["REPLICAS"])))
OTHERS = [f"{APP}-{number}" for number in NUMBERS if number != int(NUMBER)]


async def work(fence: int) -> None:
    print(f"{NAME} works with fence {fence}", flush=True)
    await asyncio.sleep(0.2)


async def main() -> None:
    stopping = asyncio.Event()

    async def lead(lease: quorlock.Lease) -> None:
        while not stopping.is_set():
            await work(lease.fence)
        # All writes are finished.
        for name in OTHERS:
            if await lease.hand_over_async(name):
                print(f"handed over to {name}", flush=True)
            # The lease has also ended if the candidate did not take over in time.
            if not lease.valid:
                break

    # The nodes and the restart guard are in the environment, as for all clients.
    async with quorlock.Client(ttl=3) as client:
        election = client.elect("leader:scheduler", holder=NAME)
        campaign = asyncio.create_task(election.run_async(lead))

        def stop() -> None:
            stopping.set()
            if client.stats().held == 0:
                campaign.cancel()  # A candidate that waits has nothing to hand over.

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        with suppress(asyncio.CancelledError):
            await campaign


asyncio.run(main())
