"""Sends reminders of unpaid orders once a day. If all hosts start it, one of them does the work."""

from typing import Any

import quorlock
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from shop import gateway
from shop.locking import locks
from shop.models import Order


class Command(BaseCommand):
    help = "Reminds of unpaid orders, each of them once a day, whatever hosts run this."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with locks.lock("send_reminders", wait=0) as lease:
                self.stdout.write(f"{self.remind(lease)} reminded")
        except quorlock.LockTimeoutError:
            self.stdout.write("another host is at it")
        except (quorlock.QuorumError, quorlock.LeaseLostError) as error:
            # The next run continues where this one stopped.
            raise CommandError(str(error)) from error

    def remind(self, lease: quorlock.Lease) -> int:
        """Returns the number of reminders sent. Each is recorded, because a free lock does not mean
        that the work is not done: a host that starts late finds nothing to do."""
        today = timezone.localdate()
        reminded = 0
        for order in Order.objects.filter(paid=False).exclude(reminded_on=today):
            lease.check()
            gateway.post("/reminders", {"order": order.pk}, key=f"reminder-{order.pk}-{today}")
            Order.objects.filter(pk=order.pk).update(reminded_on=today)
            reminded += 1
        return reminded
