"""`penstock.Tasks`: the tasks of `clients`, with the default address of `penstock.connect`.

Contract: as address.py. The address is looked up when it is first needed, so that a module with an app can be imported
before there is a broker, and a program may set `app.url`.
"""

from __future__ import annotations

from . import address
from .clients import tasks
from .clients.arguments.quantities import Duration
from .clients.encoding import Encoding
from .clients.tasks.app import Keep


class Tasks(tasks.Tasks):
    """The task functions of an application, and their queues."""

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str = "tasks",
        encoding: Encoding = "json",
        partitions: int = 1,
        lease: Duration | None = None,
        keep: Keep | None = None,
        timeout: Duration = 30.0,
        zone: str = "UTC",
    ) -> None:
        """
        Args:
            url: of the broker, as in `penstock.connect`. None: the broker that `penstock serve` of this user runs
                without --listen, or the one that PENSTOCK_URL or the configuration names.
            group: the queue group of all its queues.
            encoding: of arguments and results: "json", or "msgpack", which has bytes.
            partitions: of queues that do not exist yet.
            lease: after so long a silence of a worker its tasks go to others; None: what the queue is set to.
            keep: how long finished tasks and their results are kept, or "forever". None: a day in queues that it
                creates, and what others are set to.
            timeout: how long any verb waits for the broker.
            zone: of the cron fields of its schedules, like "Europe/Vienna".
        """
        super().__init__(
            url,
            group=group,
            encoding=encoding,
            partitions=partitions,
            lease=lease,
            keep=keep,
            timeout=timeout,
            zone=zone,
        )

    def _default_url(self) -> str:
        return address.broker_url()
