"""The settings of a broker process.

Idea: one frozen struct, made by the CLI (or a test), handed to the supervisor and, as JSON on the command
line, from there to its children. Must not know: files, environment variables, defaults of topics.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ..transport.apart import need_apart
from ..transport.url import Url, advertise_url, listen_url
from .cluster_config import ClusterConfig
from .diagnostics import DiagnosticOptions
from .errors import InsecureListen, InvalidPeers
from .exposure import need_closed


class KeeperOptions(Struct, frozen=True, kw_only=True):
    """Timing of the keeper."""

    lazy_s: float = 0.1  # how long a partition with commit="written" may stay unsynced
    mark_s: float = 0.05  # how long the mark of what was synced may wait
    quiet_s: float = 0.5  # after so long without a round, the last marks are synced too
    scrub_s: float = 7 * 86400.0  # all closed segments are read once in about this time; 0: never
    scrub_most: int = 8 << 20  # bytes read a second for that, at most
    single_files: int = 4  # with more dirty files than this in a round, one syncfs instead


class ServeConfig(Struct, frozen=True, kw_only=True):
    """Settings of one node. Times in seconds, sizes in bytes."""

    data: str  # the data directory; made when missing
    listen: tuple[str, ...] = ()  # unix://, ipc:// and tcp:// addresses; none means unix://DATA/broker.sock
    advertise: tuple[str, ...] = ()  # where others connect to, behind containers and NAT; none means where it listens
    node_id: str = ""  # the node the directory must belong to; "" takes any
    access: str = ""  # the file of users and what each may do; "" lets any client do everything
    broker_key: str = ""  # the broker's own key file, for tcp:// addresses where there are users, and between nodes
    insecure: bool = False  # allow tcp addresses that other machines can reach, without authentication
    board_rows: int = 8192  # most partitions; 256 bytes each in /dev/shm
    mapped_readers: int = 256  # most mapped readers at once; 64 bytes each on the board
    limit_files: int = 0  # most open files of each process; 0: the hard limit that the process was started with
    drain_s: float = 30.0  # SIGTERM: how long the broker may take to end in good order
    keeper_timeout_s: float = 30.0  # a keeper that syncs nothing for so long is replaced
    restart_first_s: float = 0.05  # pause before a child that died is started again; doubles ...
    restart_most_s: float = 5.0  # ... up to this
    gateway: str = ""  # settings of a gateway beside the broker, as its process takes them; "" for none
    exporter: str = ""  # the same of an exporter of metrics
    cluster: ClusterConfig | None = None  # None: a broker that is alone
    keeper: KeeperOptions = KeeperOptions()
    log: DiagnosticOptions = DiagnosticOptions()
    node: dict[str, int | float] = {}  # limits of the engine by name (see broker.engine.NodeConfig)

    def addresses(self) -> tuple[str, ...]:
        """The addresses to listen on.

        Raises:
            InvalidUrl: an address that cannot be listened on, or advertised, or that is there twice.
            InsecureListen: one that other machines can reach, without `insecure`.
            InvalidPeers: nodes of a cluster that cannot be.
        """
        if self.cluster is not None:
            self.cluster.check(guarded=bool(self.broker_key), insecure=self.insecure)
            if self.access and not self.broker_key and listen_url(self.cluster.own_address).scheme == "tcp":
                raise InvalidPeers(
                    "users of --access count for nothing where any peer may pose as a node: give all nodes the same "
                    "key (--broker-key)"
                )
        found = self.listen or (f"unix://{self.data}/broker.sock",)
        need_apart(self.places())
        for address in found:
            url = listen_url(address)
            if self.access and url.scheme == "tcp" and not self.broker_key:
                raise InsecureListen(
                    f"{address}: users of --access authenticate there by keys, so the broker needs one of its own: "
                    "make it with penstock key generate FILE, and name it with --broker-key FILE"
                )
            need_closed(url, guarded=bool(self.access), insecure=self.insecure, way_out="give users keys (--access)")
        for address in self.advertise:
            advertise_url(address)
        return found

    def places(self) -> list[tuple[str, Url]]:
        """Where the broker is to listen, each with the option that says so. Raises InvalidUrl."""
        clients = [("--listen", listen_url(address)) for address in self.listen]
        return clients if self.cluster is None else [*clients, *self.cluster.places()]

    def companions(self) -> dict[str, str]:
        """The settings of the processes to have beside the broker, by role."""
        return {role: text for role, text in (("gateway", self.gateway), ("exporter", self.exporter)) if text}

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ServeConfig:
        return msgspec.json.decode(text, type=cls)
