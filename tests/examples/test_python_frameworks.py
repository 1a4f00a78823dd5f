"""The snippets of docs/recipes/frameworks.md, in the real frameworks, on real servers.

Each test adds what the snippet leaves out: the application, the work, and somebody who calls it.
While the work runs, its lock is held. While another client holds the lock, the work does not run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.installing import ROOT
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import wait_until

import quorlock

Start = Callable[..., Program]

PAGE = (ROOT / "docs" / "recipes" / "frameworks.md").read_text()
BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SNIPPETS: dict[str, str] = {
    heading: block.split("```python\n")[1].split("```")[0]
    for heading, block in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    if "```" in block
}

BEGIN = BLOCKS[0] + "other = quorlock.Client()\n"

WORK = """
def held(name):
    with quorlock.Client() as client:
        return client.lock(f"{name}").locked()
def charge(order):
    return {"held": held(f"orders:{order}")}
def deliver(invoice):
    print(f"delivered {held(f'invoices:{invoice}')}", flush=True)
"""

FLASK = """
from flask import Flask
app = Flask("shop")
{snippet}
client = app.test_client()
print("held", client.post("/orders/42/pay").json["held"])
with other.lock("orders:42"):
    refused = client.post("/orders/42/pay")
print("refused", refused.status_code, refused.json, refused.headers["Retry-After"])
"""

AIOHTTP = """
import asyncio
from aiohttp import ClientSession, web
plain = charge
async def charge(order):
    return plain(order)
routes = web.RouteTableDef()
{snippet}
async def main():
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with ClientSession(f"http://127.0.0.1:{{port}}") as session:
        async with session.post("/orders/42/pay") as answer:
            print("held", (await answer.json())["held"])
        async with other.lock("orders:42"):
            async with session.post("/orders/42/pay") as answer:
                print("refused", answer.status)
    await runner.cleanup()
asyncio.run(main())
"""

DJANGO = """
import django
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
django.setup()
from django.http import JsonResponse
from django.test import Client
from django.urls import path
from django.views.decorators.http import require_POST
{snippet}
urlpatterns = [path("orders/<int:pk>/pay", pay)]
client = Client(raise_request_exception=False)
print("held", client.post("/orders/42/pay").json()["held"])
with other.lock("orders:42"):
    print("refused", client.post("/orders/42/pay").status_code)
print("refused", client.get("/orders/42/pay").status_code)
"""


@pytest.fixture
def run(start_python: Start) -> Callable[[str], str]:
    """`run(code)` runs a program, and returns its output."""

    def run(code: str) -> str:
        program = start_python("", "-c", code)
        assert program.end() == 0, program.text
        return program.text

    return run


def program(name: str, around: str) -> str:
    return BEGIN + WORK + around.format(snippet=SNIPPETS[name])


@pytest.mark.parametrize(
    ("name", "around", "refusals"),
    [
        ("Flask", FLASK, ["refused 409 {'error': 'TIMEOUT'} 1"]),
        ("aiohttp", AIOHTTP, ["refused 504"]),
        ("Django", DJANGO, ["refused 500", "refused 405"]),
    ],
)
def test_a_request_holds_the_lock(
    name: str, around: str, refusals: list[str], run: Callable[[str], str], servers: Servers
) -> None:
    lines = run(program(name, around)).splitlines()
    assert [line for line in lines if line.startswith(("held", "refused"))] == [
        "held True",
        *refusals,
    ]
    wait_until(lambda: not keys(servers))


CELERY = """
import os
from celery import Celery
app = Celery("jobs", broker=os.environ["BROKER_URL"])
{snippet}
"""
CELERY_SEND = "import jobs; jobs.send.delay(42)"
CELERY_RUN = "-m celery --app jobs worker --pool solo --loglevel INFO --without-gossip"

RQ = """
import os
from redis import Redis
from rq import Queue, Retry
queue = Queue(connection=Redis.from_url(os.environ["BROKER_URL"]))
{snippet}
"""
RQ_RUN = "-m rq.cli worker --url {broker} --with-scheduler"

DRAMATIQ = """
import os
import dramatiq
from dramatiq.brokers.redis import RedisBroker
dramatiq.set_broker(RedisBroker(url=os.environ["BROKER_URL"]))
{snippet}
"""
DRAMATIQ_SEND = "import jobs; jobs.send.send(42)"
DRAMATIQ_RUN = "-m dramatiq --processes 1 --threads 1 jobs"


@pytest.mark.parametrize(
    ("name", "around", "send", "worker", "busy"),
    [
        ("Celery", CELERY, CELERY_SEND, CELERY_RUN, r"Retry in .*LockTimeoutError"),
        ("RQ", RQ, "import rq_send", RQ_RUN, "LockTimeoutError"),
        ("Dramatiq", DRAMATIQ, DRAMATIQ_SEND, DRAMATIQ_RUN, r"Retrying message"),
    ],
    ids=["Celery", "RQ", "Dramatiq"],
)
def test_a_job_is_repeated_until_the_lock_is_free(
    name: str,
    around: str,
    send: str,
    worker: str,
    busy: str,
    start_python: Start,
    start_servers: Callable[..., Servers],
    servers: Servers,
    tmp_path: Path,
) -> None:
    broker = start_servers(1).urls[0]
    code = program(name, around)
    if name == "RQ":
        # The snippet sends the job as well. A worker imports only what comes before that.
        snippet, _, sending = SNIPPETS[name].rpartition("queue.enqueue")
        code = BEGIN + WORK + around.format(snippet=snippet)
        (tmp_path / "rq_send.py").write_text(f"from jobs import *\nqueue.enqueue{sending}")
    (tmp_path / "jobs.py").write_text(code)
    path = {
        "PYTHONPATH": f"{tmp_path}:{ROOT / 'bindings-python' / 'python'}",
        "BROKER_URL": broker + "/0",
    }
    with quorlock.Client(servers.urls) as client, client.lock("invoices:42"):
        jobs = start_python("", *worker.format(broker=broker + "/0").split(), **path)
        assert start_python("", "-c", send, **path).end() == 0
        jobs.wait_for(busy)
        assert "delivered" not in jobs.text
    jobs.wait_for("delivered True")
    jobs.terminate()
    wait_until(lambda: not keys(servers))
