r"""Accepts orders, which a Celery worker ships. The lock is held from the request until then.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  BROKER_URL=redis://127.0.0.1:6379 GATEWAY_URL=http://127.0.0.1:8900 uvicorn app:app --workers 4
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

import quorlock
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from kombu.exceptions import OperationalError

from tasks import ship_order

QUEUED = 30
"""For how many seconds the lock is held for a task that waits in the queue.

At most `restart_guard`, if that is set.
"""
STATUS = {"TIMEOUT": 409, "NO_QUORUM": 503, "LEASE_LOST": 503}


class State(TypedDict):
    locks: quorlock.Client


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[State]:
    async with quorlock.Client(ttl=5) as locks:  # uses the nodes in QUORLOCK_NODES
        yield {"locks": locks}


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}/ship", status_code=202)
async def ship(order: int, request: Request) -> None:
    locks: quorlock.Client = request.state.locks
    # Do not wait: while the order is queued or being shipped, the answer is 409.
    async with locks.lock(f"orders:{order}", wait=0) as lease:
        # Here, the request could check the order and reserve its items.
        text = await lease.detach_async(within=QUEUED)
    try:
        await asyncio.to_thread(
            ship_order.apply_async,
            (order, text),
            # The text is a secret: hide it from monitors, which show the arguments of tasks.
            argsrepr=f"({order}, ...)",
            retry=False,
        )
    except OperationalError as error:
        # Nobody else has the text, so take the lease back. Others need not wait.
        await (await locks.adopt_async(text)).release_async()
        raise HTTPException(503) from error


@app.exception_handler(quorlock.QuorlockError)
async def refuse(request: Request, error: quorlock.QuorlockError) -> JSONResponse:
    status = STATUS.get(error.code, 500)
    return JSONResponse({"error": error.code}, status, {"Retry-After": "1"})
