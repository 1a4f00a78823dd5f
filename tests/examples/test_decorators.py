"""`@client.lock(…)` together with the decorators of frameworks: the right order holds the lock.

In the wrong order, the framework calls the function without the lock. What can be detected is
refused. The recipes name the rest first among their pitfalls, which these tests confirm.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples.programs import Program

Start = Callable[..., Program]

BEGIN = """
from __future__ import annotations
import quorlock
locks = quorlock.Client(["memory://decorators"], wait=0)
lock = locks.lock("orders:42")
by_order = locks.lock(lambda order, **_: f"orders:{order}")
seen = []
"""

FASTAPI = """
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient

app = FastAPI()

def user() -> str:
    return "user"

@app.get("/async/{order}")
@by_order
async def read(order: int, request: Request, name: str = Depends(user)) -> bool:
    return await lock.locked_async() and name == "user"

@app.get("/plain/{order}")
@by_order
def read_plain(order: int, request: Request, name: str = Depends(user)) -> bool:
    return lock.locked() and name == "user"

@by_order
@app.get("/wrong/{order}")
async def read_wrong(order: int) -> bool:
    return await lock.locked_async()

@by_order
@app.get("/wrong-plain/{order}")
def read_wrong_plain(order: int) -> bool:
    return lock.locked()

client = TestClient(app)
for path in ("async", "plain", "wrong", "wrong-plain"):
    answer = client.get(f"/{path}/42")
    assert answer.status_code == 200, answer.text
    seen.append(answer.json())
"""

STREAM = """
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

app = FastAPI()

@app.get("/wrong")
@lock
async def wrong() -> StreamingResponse:
    async def parts():
        yield str(await lock.locked_async())
    return StreamingResponse(parts())

@app.get("/right")
async def right() -> StreamingResponse:
    async def parts():
        async with lock:
            yield str(await lock.locked_async())
    return StreamingResponse(parts())

client = TestClient(app)
seen = [client.get("/right").text == "True", client.get("/wrong").text == "True"]
"""

STARLETTE = """
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

@lock
async def held(request: Request) -> JSONResponse:
    return JSONResponse(await lock.locked_async())

@lock
def plain(request: Request) -> JSONResponse:
    return JSONResponse(lock.locked())

client = TestClient(Starlette(routes=[Route("/held", held), Route("/plain", plain)]))
seen = [client.get("/held").json(), client.get("/plain").json()]
"""

DJANGO = """
import django
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
django.setup()
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

def answer() -> JsonResponse:
    return JsonResponse(lock.locked(), safe=False)

@csrf_exempt
@require_POST
@lock
def below(request: HttpRequest) -> JsonResponse:
    return answer()

@lock
@csrf_exempt
@require_POST
def above(request: HttpRequest) -> JsonResponse:
    return answer()

@csrf_exempt
@lock
async def of_async(request: HttpRequest) -> JsonResponse:
    return JsonResponse(await lock.locked_async(), safe=False)

@method_decorator([csrf_exempt, lock], name="dispatch")
class OfClass(View):
    def post(self, request: HttpRequest) -> JsonResponse:
        return answer()

views = {"below": below, "above": above, "async": of_async, "class": OfClass.as_view()}
urlpatterns = [path(name, view) for name, view in views.items()]
seen = [Client(enforce_csrf_checks=True).post(f"/{name}").json() for name in views]
"""

CELERY = """
from celery import Celery, shared_task
app = Celery("orders", broker="memory://", set_as_current=True)

@app.task
@lock
def task() -> bool:
    return lock.locked()

@app.task(bind=True)
@locks.lock(lambda task, order: f"orders:{order}")
def bound(self, order: int) -> bool:
    return lock.locked() and self.request.id is not None

@shared_task
@lock
def shared() -> bool:
    return lock.locked()

seen = [each.get() for each in (task.apply(), bound.apply([42]), shared.apply())]
"""

APSCHEDULER = """
import queue
from apscheduler.schedulers.background import BackgroundScheduler
scheduler = BackgroundScheduler()
results = queue.Queue()

@scheduler.scheduled_job("date", misfire_grace_time=None)
@lock
def right() -> None:
    results.put(("right", lock.locked()))

@locks.lock("another")
@scheduler.scheduled_job("date", misfire_grace_time=None)
def wrong() -> None:
    results.put(("wrong", locks.lock("another").locked()))

scheduler.start()
found = dict(results.get(timeout=60) for _ in range(2))
scheduler.shutdown()
seen = [found["right"], found["wrong"]]
"""

CLICK = """
import click
from click.testing import CliRunner

@click.group()
def group() -> None: ...

@group.command()
@click.option("--order", type=int)
@by_order
def ship(order: int) -> None:
    click.echo(lock.locked())

result = CliRunner().invoke(group, ["ship", "--order", "42"])
seen = [result.output == "True\\n"]
"""


@pytest.mark.parametrize(
    ("program", "held"),
    [
        (FASTAPI, [True, True, False, False]),
        (STREAM, [True, False]),
        (STARLETTE, [True, True]),
        (DJANGO, [True, True, True, True]),
        (CELERY, [True, True, True]),
        (APSCHEDULER, [True, False]),
        (CLICK, [True]),
    ],
    ids=["FastAPI", "streaming", "Starlette", "Django", "Celery", "APScheduler", "Click"],
)
def test_the_lock_is_held_in_the_order_of_the_recipes(
    program: str, held: list[bool], start_python: Start
) -> None:
    started = start_python("", "-c", f"{BEGIN}{program}\nprint('seen', seen)")
    assert started.end() == 0, started.text
    assert f"seen {held}" in started.text


REFUSED = """
import click
import dramatiq
from celery import Celery, shared_task
from dramatiq.brokers.stub import StubBroker
app = Celery("orders", broker="memory://", set_as_current=True)
group = click.Group()

def refuses(decorate, says):
    def work() -> None: ...
    for each in (lock, by_order, locks.semaphore("s", limit=2)):
        try:
            each(decorate(work))
        except TypeError as error:
            assert says in str(error), error
            assert "directly above `def`, below all other decorators" in str(error), error
            seen.append(True)

refuses(app.task, "a Celery task")
refuses(app.task(bind=True, name="named"), "a Celery task")
refuses(shared_task, "a Celery task")
refuses(click.command(), "a command")
refuses(group.command("named"), "a command")

def actor(work):
    dramatiq.set_broker(StubBroker())  # it refuses a second actor with the same name
    return dramatiq.actor(work)

refuses(actor, "a dramatiq actor")
"""


def test_the_wrong_order_is_refused_where_the_framework_makes_an_object(
    start_python: Start,
) -> None:
    started = start_python("", "-c", f"{BEGIN}{REFUSED}\nprint('seen', len(seen))")
    assert started.end() == 0, started.text
    assert "seen 18" in started.text
