"""Arguments that name what a broker has: shells complete them with what is there.

Contract: any text is accepted, since only the broker knows what is there when the command runs. A completion that
gets no answer within COMPLETION_S offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from .. import address
from .. import config as configuration

if TYPE_CHECKING:
    from ..clients import Client

COMPLETION_S = 1.0


class BrokerName(click.ParamType):
    """A name of one kind. `listed` gives those there are, for the topic that stands before it, if any."""

    name = "text"

    def __init__(self, listed: Callable[[Client, str | None], Iterable[str]]) -> None:
        self._listed = listed

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ..connecting import connect
        from ..storage.errors import Error

        try:
            loaded = configuration.load({"url": ctx.params.get("url")}, path=ctx.params.get("config_file"))
            with connect(address.broker_url(loaded), timeout=COMPLETION_S) as client:
                found = set(self._listed(client, _topic(ctx)))
        except (Error, OSError):
            return []
        return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


def _topic(ctx: click.Context) -> str | None:
    """The topic that was named before; click has not told arguments apart while an option's value is missing."""
    return ctx.params.get("topic") or next(iter(ctx.args), None)


def _groups(client: Client, topic: str | None) -> Iterable[str]:
    return (group.name for group in client.groups(topic))


def _queue_groups(client: Client, topic: str | None) -> Iterable[str]:
    return (queue.name for queue in client.queues(topic))


def _workers(client: Client, topic: str | None) -> Iterable[str]:
    return (each.name for queue in client.queues(topic) for each in client.workers(queue.topic, queue.name))


TOPIC = BrokerName(lambda client, _: (topic.name for topic in client.topics()))
GROUP = BrokerName(_groups)
QUEUE_GROUP = BrokerName(_queue_groups)
SCHEDULE = BrokerName(lambda client, topic: (schedule.name for schedule in client.schedules(topic)))
WORKER = BrokerName(_workers)

topic_argument = click.argument("topic", type=TOPIC)
queue_group_option = click.option(
    "--group", type=QUEUE_GROUP, default="tasks", show_default=True, help="The queue group."
)
