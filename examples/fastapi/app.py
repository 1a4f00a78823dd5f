r"""Pays orders. Only one request at a time handles an order, in all workers of all hosts.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  GATEWAY_URL=http://127.0.0.1:8900 uvicorn app:app --workers 4
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

import httpx
import quorlock
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

import store

STATUS = {"TIMEOUT": 409, "NO_QUORUM": 503, "LEASE_LOST": 503}
"""The HTTP status by the code of the error."""


log = logging.getLogger("uvicorn.error")


class State(TypedDict):
    locks: quorlock.Client
    cards: httpx.AsyncClient


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[State]:
    store.create()
    async with (
        quorlock.Client(ttl=5) as locks,  # uses the nodes in QUORLOCK_NODES
        httpx.AsyncClient(base_url=os.environ["GATEWAY_URL"], timeout=60) as cards,
    ):
        yield {"locks": locks, "cards": cards}


app = FastAPI(lifespan=lifespan)


async def hold_order(order: int, request: Request) -> AsyncIterator[quorlock.Lease]:
    """Holds the lock while the endpoint runs. When the lease is lost, the endpoint is cancelled."""
    locks: quorlock.Client = request.state.locks
    async with locks.lock(f"orders:{order}", wait=1) as lease:
        yield lease


# "function": the lock is released before the answer is sent, so a loss can still be answered.
HeldOrder = Annotated[quorlock.Lease, Depends(hold_order, scope="function")]


@app.post("/orders/{order}/pay")
async def pay(order: int, lease: HeldOrder, request: Request) -> dict[str, bool]:
    paid = store.is_paid(order)
    if paid is None:
        raise HTTPException(404)
    if not paid:
        cards: httpx.AsyncClient = request.state.cards
        charge = await cards.post(
            "/charges",
            json={"order": order},
            # The lock excludes other requests; the key makes a repetition after a crash harmless.
            headers={"Idempotency-Key": f"order-{order}"},
        )
        charge.raise_for_status()
        store.mark_paid(order, lease.fence)
    return {"charged": not paid}


@app.exception_handler(quorlock.QuorlockError)
async def refuse(request: Request, error: quorlock.QuorlockError) -> JSONResponse:
    status = STATUS.get(error.code, 500)
    if status != 409:  # contention is normal
        log.warning("%s", error)
    return JSONResponse({"error": error.code}, status, {"Retry-After": "1"})
