r"""Elects a leader among several candidates. A leader that loses its lease is a candidate again.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  python leader.py
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
    """Calls `lead` whenever it is elected, until it is cancelled or `lead` returns."""
    # Wait for as long as another candidate leads, and lead without a time limit.
    office = client.lock(f"leader:{role}", wait=None, max_hold=None)
    while True:
        try:
            async with office as lease:
                print(f"elected with fence {lease.fence}")
                return await lead(lease)
        except (quorlock.LeaseLostError, store.StaleFenceError) as error:
            # `lead` was cancelled when the lease ended, before another candidate can be elected. Or
            # it was paused for longer, and the storage refused its write.
            print(f"stepped down: {error}")
        except quorlock.QuorumError as error:
            print(f"no election: {error}")
            await asyncio.sleep(1)


async def lead(lease: quorlock.Lease) -> None:
    """The work of the leader."""
    while True:
        # A leader that was paused may get here after its lease has ended.
        store.write_report(lease.fence)
        print("wrote a report")
        await asyncio.sleep(0.2)


async def main() -> None:
    store.create()
    async with quorlock.Client(ttl=3) as client:
        campaigning = asyncio.create_task(campaign(client, "reports", lead))
        # On SIGTERM the lease is released, so the next leader is elected immediately.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, campaigning.cancel)
        with suppress(asyncio.CancelledError):
            await campaigning


asyncio.run(main())
