"""The rules of a replicated shard, and for each a fault that breaks it and the test that notices.

A mutant is a piece of source and what takes its place; a rule has one or more. `python -m support.rule_mutants
[RULE ...]` (with `tests` on the path) runs the tests of some rules or all over their mutants, each in a process of its
own, and says which were noticed.
The faults of the Raft core itself are `support.raft_mutants`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from support.faulty import verdict


@dataclass(frozen=True)
class RuleMutant:
    """`rule`: its number; `says`: the rule in short. In the file, `old` becomes `new`, and a test of `tests` fails."""

    rule: int
    says: str
    file: str
    old: str
    new: str
    tests: str


_REPLICA, _TESTS = "broker/replica", "tests/broker/replica"

MUTANTS = [
    RuleMutant(
        1, "files of a deleted topic go behind a checkpoint", f"{_REPLICA}/member_logs.py",
        "self.departing.delete(topic, self._of_topic.get(topic, []), self.places.entry)", "super().delete(topic)",
        f"{_TESTS}/test_members.py::test_files_of_a_deleted_topic_go_once_a_checkpoint_covers_the_deletion",
    ),
    RuleMutant(
        2, "a log that does not reach its place in the checkpoint is damage", f"{_REPLICA}/opening.py",
        "    logs.check(found)\n", "", f"{_TESTS}/test_opening_rules.py",
    ),
    RuleMutant(
        2, "a log that the checkpoint names and that is missing is damage", f"{_REPLICA}/opening.py",
        'if log is None:\n                raise ReplicaDamaged(f"log {log_id.hex()}, which the checkpoint',
        'if log is None:\n                continue\n                raise ReplicaDamaged(f"log {log_id.hex()}, the',
        f"{_TESTS}/test_opening_rules.py",
    ),
    RuleMutant(
        2, "a checkpoint waits for the syncs of its logs", f"{_REPLICA}/order_checkpoints.py",
        "            if any(log.durable < seq for log, seq in some):\n", "            if False:\n",
        f"{_TESTS}/test_large_topics.py",
    ),
    RuleMutant(
        3, "a log that no entry names is set aside", f"{_REPLICA}/opening.py",
        "if log_id in places.end or not self._is_strange(log):", "if True:", f"{_TESTS}/test_opening_rules.py",
    ),
    RuleMutant(
        4, "a failed append is cut before anything else is stamped", f"{_REPLICA}/replicated.py",
        "            cutting.cut(log)\n", "            pass\n", f"{_TESTS}/test_replicated.py",
    ),
    RuleMutant(
        5, "a follower makes the logs of a topic before it takes the entry", f"{_REPLICA}/preparing.py",
        "if body is not None and not self._node.prepare(_verified(body), MADE_AT_ONCE):", "if False:",
        f"{_TESTS}/test_large_topics.py",
    ),
    RuleMutant(
        5, "nodes that accept different amounts say so", "broker/peers/links.py",
        'if (told := other_limits(hello, self.own)) != self._limits_told.get(hello.node, ""):', "if False:",
        "tests/broker/peers/test_links.py",
    ),
    RuleMutant(
        6, "the shard does not serve before all directories have met", f"{_REPLICA}/replica.py",
        "return is_open and self.directories.table.met", "return is_open", f"{_TESTS}/test_lost_disks.py",
    ),
    RuleMutant(
        7, "a broker that is alone refuses the directory of a member", "storage/data_directory.py",
        "if found is not None and found.shard:", "if False:", "tests/broker/member/test_directory.py",
    ),
    RuleMutant(
        7, "no process alone opens a log of a member", "storage/embedded.py",
        "check_alone(identify(self._files, data), data)", "pass", "tests/broker/member/test_directory.py",
    ),
    RuleMutant(
        7, "a member has a format of its own", "broker/member/directory.py",
        "            MEMBER_FORMAT, files", "            1, files", "tests/broker/member/test_directory.py",
    ),
    RuleMutant(
        7, "no command repairs a log of a member", "penstock/cli/log.py",
        "    found.check_alone()\n    whole = True", "    whole = True", "tests/face/test_lost_logs.py",
    ),
    RuleMutant(
        8, "a promise is durable before a message of its term leaves", f"{_REPLICA}/group_storage.py",
        "            promises.promise(log_id, promise.term, vote)\n", "            pass\n", f"{_TESTS}/test_members.py",
    ),
    RuleMutant(
        8, "a promise that is found is durable before it is kept to", f"{_REPLICA}/group_storage.py",
        "        promises.make_durable()\n", "", f"{_TESTS}/test_failed_syncs.py",
    ),
    RuleMutant(
        9, "a damaged member is served in a term above its promises", f"{_REPLICA}/exchange.py",
        "return replica.may_lead() and promised < replica.core.term", "return replica.may_lead()",
        f"{_TESTS}/test_damaged_members.py",
    ),
    RuleMutant(
        9, "an entry is durable with the batches that it names", f"{_REPLICA}/durable_prefix.py",
        "entry > order or any(durable(log_id) < seq for log_id, seq in batches)", "entry > order",
        f"{_TESTS}/test_durable_prefix.py",
    ),
    RuleMutant(
        9, "no cut goes below what is committed", f"{_REPLICA}/order_log.py",
        "self._order.commit = max(self._order.commit, entry)", "pass", f"{_TESTS}/test_order_log.py",
    ),
    RuleMutant(
        9, "a replica with a log that is poisoned closes", f"{_REPLICA}/replica.py",
        "            raise ReplicaBroken(self._replicated.broken)\n", "            pass\n",
        f"{_TESTS}/test_failed_syncs.py",
    ),
    RuleMutant(
        10, "an order below what was acknowledged is damage", f"{_REPLICA}/opening.py",
        "acknowledged = max(known, _acked(order, found))", "acknowledged = known", f"{_TESTS}/test_opening_rules.py",
    ),
    RuleMutant(
        11, "nothing of a manifest goes while a member fetches it", f"{_REPLICA}/shipping.py",
        "        self._hold(True)\n", "", f"{_TESTS}/test_catch_up.py",
    ),
    RuleMutant(
        12, "a member that adds up to something else than a majority closes", f"{_REPLICA}/digesting.py",
        "            raise damage\n", "            pass\n", f"{_TESTS}/test_digests.py",
    ),
    RuleMutant(
        13, "an answer waits for a round that began after its request", f"{_REPLICA}/held_answers.py",
        "if self.passing or isinstance(message, _EXEMPT):", "if True:", f"{_TESTS}/test_members.py",
    ),
    RuleMutant(
        14, "an office opens when an entry of its term is applied", f"{_REPLICA}/replica.py",
        "self.core.role is Role.LEADER and self._opened_term == self.core.term", "self.core.role is Role.LEADER",
        f"{_TESTS}/test_members.py::test_an_office_opens_only_when_an_entry_of_its_own_term_is_applied",
    ),
    RuleMutant(
        14, "no lease has the token of another", "broker/engine/queues/verbs.py",
        "assert token > queue.last_token, (", "assert token, (",
        "tests/broker/engine/queues/test_verbs.py::test_an_office_that_numbers_leases_as_one_before_it_gives_none",
    ),
    RuleMutant(
        15, "nothing is stamped without asking the core", f"{_REPLICA}/replica.py",
        "if place is None or is_full:\n            return", "if is_full:\n            return",
        f"{_TESTS}/test_lost_disks.py",
    ),
    RuleMutant(
        15, "no more is proposed than a leader may hold", f"{_REPLICA}/uncommitted.py",
        "return self.bytes > UNCOMMITTED_BYTES", "return False", f"{_TESTS}/test_uncommitted.py",
    ),
    RuleMutant(
        15, "no client is heard while nothing may be proposed", "broker/member/member.py",
        "return self.replica.held_back", "return False", f"{_TESTS}/test_uncommitted.py",
    ),
    RuleMutant(
        16, "of clocks that contradict each other the earlier counts", f"{_REPLICA}/clocks.py",
        "(len(known) - 1) // 2", "len(known) // 2", f"{_TESTS}/test_clocks.py",
    ),
    RuleMutant(
        16, "a lease that an outage would have ended has a grace after it", "broker/engine/logs/grace.py",
        "self._time.monotonic_s < self.end_s(lasting_s)", "False", "tests/broker/engine/logs/test_grace.py",
    ),
    RuleMutant(
        17, "records are refused while fewer than a majority have room", f"{_REPLICA}/room.py",
        "above[len(above) // 2] - uncommitted", "above[0]", f"{_TESTS}/test_room.py",
    ),
    RuleMutant(
        18, "logs are made in portions, while peers are served", f"{_REPLICA}/preparing.py",
        "MADE_AT_ONCE = 8", "MADE_AT_ONCE = 5000", f"{_TESTS}/test_large_topics.py",
    ),
    RuleMutant(
        18, "a broker whose syncs are slow leaves them to the keeper", "broker/watermarks.py",
        "self._is_slow = took_s > SLOW_SYNC_S", "pass", "tests/broker/keeper/test_slow_syncs.py",
    ),
    RuleMutant(
        18, "a turn takes no more bytes than can be written while others wait", "broker/intake.py",
        "has_its_share or self.bytes >= TURN_BYTES", "has_its_share", "tests/broker/test_intake.py",
    ),
    RuleMutant(
        19, "what is not committed is not seen", f"{_REPLICA}/replicated.py",
        "return min(self.places.applied.get(log.log_id, START)[0], log.written)", "return log.written",
        f"{_TESTS}/test_replicated.py",
    ),
    RuleMutant(
        20, "a peer that comes with another directory is refused", "broker/peers/greeting.py",
        "or entry > known_at", "or True",
        "tests/broker/peers/test_greeting.py",
    ),
    RuleMutant(
        20, "a peer of another cluster is refused", "broker/peers/greeting.py",
        "if hello.cluster != own.cluster:", "if False:", "tests/broker/peers/test_greeting.py",
    ),
    RuleMutant(
        20, "a peer that takes this node for another is refused", "broker/peers/greeting.py",
        "if hello.to != own.node:", "if False:", "tests/broker/peers/test_greeting.py",
    ),
    RuleMutant(
        20, "a peer that knows another directory of this node is refused", "broker/peers/greeting.py",
        "if not may_be(own.uuid, entry, hello.to_uuid, hello.entry):", "if False:",
        "tests/broker/peers/test_greeting.py",
    ),
    RuleMutant(
        20, "a peer that was started again is noticed", "broker/peers/links.py",
        "if self._incarnations.setdefault(hello.node, hello.incarnation) != hello.incarnation:", "if False:",
        "tests/broker/peers/test_links.py",
    ),
    RuleMutant(
        20, "nodes without keys hear one machine alone", "broker/cluster_config.py",
        "listen_url(self.own_address), guarded=guarded,", "listen_url(self.own_address), guarded=True,",
        "tests/broker/test_cluster_config.py",
    ),
    RuleMutant(
        21, "a member saves one change of the members before it takes the next", f"{_REPLICA}/member_changes.py",
        "entries[: changes[allowed]] if len(changes) > allowed else entries", "entries",
        f"{_TESTS}/test_old_disks.py",
    ),
    RuleMutant(
        22, "what is committed is said beside a checkpoint that may rot", f"{_REPLICA}/opening.py",
        "known = max(found.commit, _newest_snapshot(files, order.log), *noted)", "known = found.commit",
        f"{_TESTS}/test_old_disks.py",
    ),
]  # fmt: skip


if __name__ == "__main__":
    chosen = set(map(int, sys.argv[1:]))
    for each in MUTANTS:
        if not chosen or each.rule in chosen:
            print(f"{each.rule}, {each.says}: {verdict(each)}", flush=True)
