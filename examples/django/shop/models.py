"""Orders. A write names the fence of its lease, and an older one than the last is refused."""

from django.db import models


class StaleFenceError(Exception):
    """Somebody with a larger fence has written since: this holder was paused past its lease."""


class Order(models.Model):
    paid = models.BooleanField(default=False)
    reminded_on = models.DateField(null=True)
    fence = models.BigIntegerField(default=0)

    def mark_paid(self, fence: int) -> None:
        """Raises StaleFenceError. A holder may write as often as it likes: `lte`, not `lt`."""
        current = Order.objects.filter(pk=self.pk, fence__lte=fence)
        if not current.update(paid=True, fence=fence):
            raise StaleFenceError(f"order {self.pk} was written with a fence larger than {fence}")
