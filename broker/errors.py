"""The errors of the broker: refusals by the rules of topics, producers and groups.

Idea: one class per machine code; a client raises the same class from a Failure (`Error.by_code`).
Contract: as `storage/errors.py`: a message names the thing, the value, the limit and the way out.
"""

from __future__ import annotations

from ..storage.errors import Error


class BrokerError(Error):
    """Something the broker refused."""

    code = "broker"


class InvalidRequest(BrokerError, ValueError):
    """A request with an invalid field."""

    code = "invalid_request"


class InvalidSettings(BrokerError, ValueError):
    """A topic setting that is unknown or out of range."""

    code = "invalid_settings"


class Forbidden(BrokerError):
    """No grant allows this principal the operation on the resource, or one denies it."""

    code = "forbidden"


class Overloaded(BrokerError):
    """The user's quota is used up, or too many answers are unread: ask again after `retry_after` seconds."""

    code = "overloaded"
    retry = True

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidUsers(BrokerError, ValueError):
    """A file of users and grants that cannot be used: its content, or who may read it."""

    code = "invalid_users"


class UnsupportedVersion(BrokerError):
    """Client and broker share no version of the protocol."""

    code = "unsupported_version"


class UnknownTopic(BrokerError, LookupError):
    """No topic of this name or id; a recreated topic has another id."""

    code = "unknown_topic"


class TopicExists(BrokerError):
    """A topic of this name is there already."""

    code = "topic_exists"


class UnknownPartition(BrokerError, LookupError):
    """The topic has no such partition."""

    code = "unknown_partition"


class Unavailable(BrokerError):
    """The partition or the catalogue cannot be used until it is repaired; the message says what is wrong."""

    code = "unavailable"


class NoLeader(BrokerError):
    """The node does not lead, or not yet: nothing was done, and asking again helps."""

    code = "no_leader"
    retry = True


class NotLeader(BrokerError):
    """Another node of the cluster leads, at `where`: nothing was done here."""

    code = "not_leader"
    retry = True
    where: str = ""
    """The leader's address; "" when this node does not know it."""
    term: int = 0
    """The term that it leads in."""


class InvalidPeers(BrokerError, ValueError):
    """Nodes of a cluster that cannot be: how many, their ids, or their addresses."""

    code = "invalid_peers"


class WrongCluster(BrokerError):
    """Nodes that belong to different clusters: nothing was done."""

    code = "wrong_cluster"


class PartitionUnavailable(Unavailable):
    """A consumer or worker cannot have one partition of its topic; said once: the next call goes on with the others."""

    code = "partition_unavailable"
    retry = True
    partition: int = -1


class LimitReached(BrokerError):
    """A stated bound of the broker (topics, partitions, sessions, producers) is reached."""

    code = "limit_reached"


class NotLent(BrokerError):
    """A log that is not lent to a producer, for which the message says why: its records go through the broker."""

    code = "not_lent"
    retry = True


class SequenceGap(BrokerError):
    """A producer's batch does not follow the one before: something in between was never received."""

    code = "sequence_gap"


class UnknownProducer(BrokerError):
    """A producer the partition has forgotten (or never saw) goes on in the middle of its sequence."""

    code = "unknown_producer"


class Fenced(BrokerError):
    """A newer owner took over: of a producer's name, or of a partition of a group. Or a stage is being committed."""

    code = "fenced"


class UnknownGroup(BrokerError, LookupError):
    """The topic has no such group."""

    code = "unknown_group"


class GroupActive(BrokerError):
    """The group has members, and the request needs it idle."""

    code = "group_active"


class UnknownSession(BrokerError):
    """The session is over, or belonged to an earlier start of the broker: join again."""

    code = "unknown_session"


class SessionExpired(BrokerError):
    """A session was silent for longer than its timeout."""

    code = "session_expired"


class SessionReplaced(BrokerError):
    """The same member joined again under a newer session."""

    code = "session_replaced"


class UnknownEffect(BrokerError):
    """A log holds an effect or a kind of batch this version does not know: a newer version must open it."""

    code = "unknown_effect"


class LeaseLost(BrokerError):
    """The lease is over: it ran out, or another worker has the record. Results under it do not count."""

    code = "lease_lost"


class UnknownLease(BrokerError, LookupError):
    """No lease of this group has this token, or it does not hold these records."""

    code = "unknown_lease"


class UnknownTask(BrokerError, LookupError):
    """No record of the group in the state that was asked for."""

    code = "unknown_task"


class TaskForgotten(UnknownTask):
    """A finished task whose outcome has expired."""

    code = "task_forgotten"


class StageLost(BrokerError):
    """Records staged for a transaction are missing: they were dropped, or never arrived."""

    code = "stage_lost"


class UnknownSchedule(BrokerError, LookupError):
    """The topic has no schedule of this name."""

    code = "unknown_schedule"


class UnknownBarrier(BrokerError, LookupError):
    """The topic has no barrier with this id: its callback came, its time was over, or it was deleted."""

    code = "unknown_barrier"


class InsecureListen(BrokerError):
    """An address that other machines can reach without authentication, and without `insecure`."""

    code = "insecure_listen"


class CannotStart(BrokerError):
    """The broker's processes did not come up, or do not stay up."""

    code = "cannot_start"
