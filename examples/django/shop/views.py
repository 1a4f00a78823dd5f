"""Pays orders. Only one request at a time handles an order, in all workers of all hosts."""

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from . import gateway
from .locking import locks
from .models import Order


@csrf_exempt
@require_POST
def pay(request: HttpRequest, pk: int) -> JsonResponse:
    # A transaction must be inside of the lock: the next holder must see what it has committed.
    with locks.lock(f"orders:{pk}", wait=1) as lease:
        order = get_object_or_404(Order, pk=pk)
        if order.paid:
            return JsonResponse({"charged": False})
        gateway.post("/charges", {"order": pk}, key=f"order-{pk}")
        lease.check()
        order.mark_paid(lease.fence)
        return JsonResponse({"charged": True})
