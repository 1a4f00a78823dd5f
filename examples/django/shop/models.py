"""Orders. A write carries the fence of its lease, and is refused if it is older than the last."""

from django.db import models


class StaleFenceError(Exception):
    """A later holder has already written: this one was paused for longer than its lease."""


class Order(models.Model):
    paid = models.BooleanField(default=False)
    reminded_on = models.DateField(null=True)
    fence = models.BigIntegerField(default=0)

    def mark_paid(self, fence: int) -> None:
        """Raises StaleFenceError. A holder can write repeatedly, hence `lte`, not `lt`."""
        current = Order.objects.filter(pk=self.pk, fence__lte=fence)
        if not current.update(paid=True, fence=fence):
            raise StaleFenceError(f"order {self.pk} was written with a fence larger than {fence}")
