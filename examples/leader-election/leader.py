"""A leader among several candidates. When it loses the lease it is a candidate again.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 python leader.py
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import quorlock

import store


async def campaign(
    client: quorlock.Client, role: str, lead: Callable[[quorlock.Lease], Awaitable[None]]
) -> None:
    """Leads whenever it is elected, until it is cancelled or `lead` returns."""
    # It waits for as long as another one leads, and may lead for ever.
    office = client.lock(f"leader:{role}", wait=None, max_hold=None)
    while True:
        try:
            async with office as lease:
                print(f"elected with fence {lease.fence}")
                return await lead(lease)
        except (quorlock.LeaseLostError, store.StaleFenceError) as error:
            # `lead` was cancelled when the lease ended, before another one can be elected. Or it
            # was paused for longer, and the storage told it first.
            print(f"stepped down: {error}")
        except quorlock.QuorumError as error:
            print(f"no election: {error}")
            await asyncio.sleep(1)


async def lead(lease: quorlock.Lease) -> None:
    """What only the leader does."""
    while True:
        # A leader that was paused may get here without knowing that it is none any more.
        store.write_report(lease.fence)
        print("wrote a report")
        await asyncio.sleep(0.2)


async def main() -> None:
    store.create()
    async with quorlock.Client(ttl=3) as client:
        campaigning = asyncio.create_task(campaign(client, "reports", lead))
        # It leaves office when it is asked to end, and the next one is elected at once.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, campaigning.cancel)
        with suppress(asyncio.CancelledError):
            await campaigning


asyncio.run(main())
