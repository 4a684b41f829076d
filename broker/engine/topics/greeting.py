"""Hello, Stats and NameRequest: the broker's identity, its counters, and names of requests, which are for its log.

Contract: the highest version both sides speak is chosen, or the connection is refused with both ranges named. What a
node says that follows in a lower term than one that the client has seen is outdated. A leader of such a term may be
deposed without knowing: its driver holds the Welcome until that is ruled out (replica/held_answers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ....transport.messages import Hello, NameRequest, Stats, StatsReply, Welcome
from ...errors import NoLeader, UnsupportedVersion
from ..ports import LEADS_NOT_YET, Handlers, NodeConfig, NodeStanding, Now, Payload, Peer, Port, Work

Counting = Callable[[], Generator[int | None, None, dict[str, Any]]]
"""Counters and sizes by name, counted in steps."""


class Greeting:
    """Handlers of Hello, Stats and NameRequest.

    `position`: what the node is now, and the incarnation of its office, 0 without one.
    """

    def __init__(
        self, port: Port, config: NodeConfig, position: Callable[[], tuple[NodeStanding, int]], stats: Counting
    ) -> None:
        self.handlers: Handlers = {Hello: self.hello, Stats: self.stats, NameRequest: self.name}
        self._port = port
        self._config = config
        self._position = position
        self._stats = stats

    def hello(self, peer: Peer, message: Hello, payload: Payload, now: Now) -> None:
        """Agree on a version. Raises UnsupportedVersion, NoLeader."""
        config = self._config
        version = min(message.newest_version, config.newest_version)
        if version < max(message.oldest_version, config.oldest_version):
            raise UnsupportedVersion(
                f"the client speaks versions {message.oldest_version} to {message.newest_version}, "
                f"this broker {config.oldest_version} to {config.newest_version}: upgrade the older one"
            )
        standing, incarnation = self._position()
        if message.term > standing.term and not incarnation:
            raise NoLeader(
                f"this node knows of term {standing.term}, and the client of term {message.term}: another node leads"
            )
        if not incarnation and not standing.role:
            raise NoLeader(LEADS_NOT_YET)
        self._port.reply(
            peer,
            Welcome(
                message.request, version, config.server, config.node, config.cluster, incarnation,
                config.max_frame_bytes, config.max_record_bytes, config.boot_id, config.data, config.board,
                list(config.advertise), standing.role, standing.term, list(standing.leader),
            ),
        )  # fmt: skip

    def stats(self, peer: Peer, message: Stats, payload: Payload, now: Now) -> Work:
        """Counters and sizes."""
        self._port.reply(peer, StatsReply(message.request, (yield from self._stats())))

    def name(self, peer: Peer, message: NameRequest, payload: Payload, now: Now) -> None:
        """Do nothing: the driver, which writes the log, knows the name already."""
