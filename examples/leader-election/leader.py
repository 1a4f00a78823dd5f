r"""Elects a leader among several candidates. A leader that loses its lease is a candidate again.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  python leader.py
"""

import asyncio
import logging
import signal
from contextlib import suppress

import quorlock

import store


async def lead(lease: quorlock.Lease) -> None:
    """The work of the leader. It is cancelled when the lease ends, before another candidate can be
    elected."""
    print(f"elected with fence {lease.fence}")
    lease.on_lost(lambda loss: print(f"stepped down: {loss}"))
    while True:
        try:
            store.write_report(lease.fence)
        except store.StaleFenceError:
            # The process was paused until another leader had written. Raises LeaseLostError.
            lease.check()
            raise
        print("wrote a report")
        await asyncio.sleep(0.2)


async def main() -> None:
    # Shows warnings, such as those of an outage.
    logging.basicConfig(format="%(message)s")
    store.create()
    async with quorlock.Client(ttl=3) as client:
        campaign = asyncio.create_task(client.elect("leader:reports").run_async(lead))
        # On SIGTERM the lease is released, so the next leader is elected immediately.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, campaign.cancel)
        with suppress(asyncio.CancelledError):
            await campaign


asyncio.run(main())
