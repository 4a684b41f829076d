"""The rules of direct append, and for each a fault that breaks it and the tests that notice.

A mutant is a piece of source and what takes its place. `python -m support.lending_mutants [NUMBER ...]` (with `tests`
on the path) runs the tests of some rows or all over their mutants, each in a process of its own, and says which test
noticed. The orders of steps that no test of one process can tell apart are `tests/storage/test_lending_model.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from support.faulty import verdict


@dataclass(frozen=True)
class LendingMutant:
    """`says`: the rule in short. In the file, `old` becomes `new`, and a test of `tests` fails."""

    says: str
    file: str
    old: str
    new: str
    tests: str


_LOG, _OFFICE = "storage/lending", "broker/engine/lending"
_TERMS, _LENT = f"tests/{_LOG}/test_terms_of_lending.py", f"tests/{_LOG}/test_lent_log.py"
_LENDER, _FOLLOWING = f"tests/{_LOG}/test_lender.py", f"tests/{_LOG}/test_following.py"
_GRANTS, _STOPPED = f"tests/{_OFFICE}/test_grants.py", f"tests/{_OFFICE}/test_stopped_producers.py"
_OTHERS = f"tests/{_OFFICE}/test_beside_others.py"

MUTANTS = [
    # the appender
    LendingMutant(
        "nothing is appended without the byte", f"{_LOG}/appending.py",
        "if not self._locks.take(self._byte):", "if self._locks.take(self._byte) is None:", _TERMS,
    ),
    LendingMutant(
        "the grant is looked at again once the byte is free", f"{_LOG}/appending.py",
        "if appended is not None and self._is_current():", "if appended is not None:", _LENT,
    ),
    LendingMutant(
        "a grant ends with the incarnation that gave it", f"{_LOG}/appending.py",
        " and self._incarnation() == grant.incarnation", "", _TERMS,
    ),
    LendingMutant(
        "nothing is appended while the broker appends", f"{_LOG}/appending.py",
        "if row.lent & PAUSED:", "if False:", _TERMS,
    ),
    LendingMutant("nothing is appended to a poisoned log", f"{_LOG}/appending.py", " or row.poison", "", _TERMS),
    LendingMutant(
        "nothing is appended in another generation", f"{_LOG}/appending.py",
        "if generation != grant.generation:", "if False:", _TERMS,
    ),
    LendingMutant(
        "a batch goes behind what the broker appended", f"{_LOG}/appending.py",
        "if written > self._end.seq:", "if False:", _LENT,
    ),
    LendingMutant(
        "no batch has the time of an old clock", f"{_LOG}/appending.py", "if moved_s > GOOD_S:", "if False:", _TERMS,
    ),
    LendingMutant(
        "the appender reserves nothing", f"{_LOG}/appending.py", "return end <= self._allocated", "return True", _TERMS,
    ),
    LendingMutant(
        "plain records alone are appended", f"{_LOG}/appending.py", "if not is_plain(batch, found):", "if False:",
        _TERMS,
    ),
    LendingMutant(
        "what may stand unacknowledged is in doubt", f"{_LOG}/appending.py",
        "        self.in_doubt = True\n", "", _TERMS,
    ),
    LendingMutant(
        "the word is stored behind the batch", f"{_LOG}/appending.py",
        "        self._segment.pwritev(entry.buffers, before.position)\n",
        "        row.appended = word(generation, place.seq)\n"
        "        self._segment.pwritev(entry.buffers, before.position)\n", _LENT,
    ),
    LendingMutant(
        "no index row is believed that does not agree with its batch", f"{_LOG}/appending.py",
        "if (batch.seq, batch.log_id, batch.header_checksum) != (seq, self._grant.log_id, row.header_checksum):",
        "if False:", _TERMS,
    ),
    # following
    LendingMutant(
        "what is followed continues the chain", f"{_LOG}/following.py",
        "reason = follows(end, batch, log_id)", 'reason = ""', f"{_FOLLOWING} {_TERMS}",
    ),
    LendingMutant(
        "what is followed is the producer's next", f"{_LOG}/following.py",
        " or named != (terms.producer_id, terms.epoch, terms.sequence)", "", _FOLLOWING,
    ),
    LendingMutant(
        "what is followed is of no later time", f"{_LOG}/following.py",
        " <= max(latest_us, end.time_us)", "", _TERMS,
    ),
    LendingMutant(
        "what is followed has columns of plain records", f"{_LOG}/following.py",
        "if any(column.id not in ALLOWED for column in batch.directory()):", "if False:", f"{_FOLLOWING} {_TERMS}",
    ),
    LendingMutant("what is followed is checked", f"{_LOG}/following.py", "            batch.check()\n", "", _TERMS),
    LendingMutant(
        "what is followed is judged as a broker's", f"{_LOG}/following.py", "            terms.judge(batch)\n", "",
        _TERMS,
    ),
    LendingMutant(
        "a word beyond the batches is refused", f"{_LOG}/following.py",
        "if not stopped and tail.written < until:", "if False:", _TERMS,
    ),
    # the lender
    LendingMutant(
        "a log in motion or in doubt is not lent", f"{_LOG}/lender.py", "not _is_calm(log) or not", "not", _LENDER,
    ),
    LendingMutant(
        "a grant begins with a word of its own", f"{_LOG}/lender.py",
        "            self._row.appended = word(log.generation, log.written)\n", "", _TERMS,
    ),
    LendingMutant(
        "the holder of the byte follows every batch", f"{_LOG}/lender.py",
        "followed = follow_every(log, terms, latest_us)", "followed = TakenOver([])", _LENT,
    ),
    LendingMutant(
        "what is followed is published", f"{_LOG}/lender.py",
        "        if followed.batches:\n            self._publish()\n", "", _TERMS,
    ),
    LendingMutant(
        "behind what may not stand the log is cut", f"{_LOG}/lender.py",
        "log.must_cut, log.ready = True, False", "pass", _TERMS,
    ),
    LendingMutant(
        "what the broker appended is published before the byte is free", f"{_LOG}/lender.py",
        "        self._publish()\n        log = self._log\n", "        log = self._log\n", _LENDER,
    ),
    LendingMutant(
        "a grant is for one segment", f"{_LOG}/lender.py", " or log.opened[-1].ref != self._segment", "", _TERMS,
    ),
    LendingMutant(
        "a forced recall is a barrier before the look", f"{_LOG}/lender.py",
        "        self._locks.take(self._byte)  # a system call", "        # a system call", _LENDER,
    ),
    LendingMutant(
        "what was not said before a forced recall is void", f"{_LOG}/lender.py", "        log.cut_here()\n", "", _TERMS,
    ),
    # the office
    LendingMutant(
        "no answer lags what its asker may know", f"{_OFFICE}/lending.py",
        "        self.follow(now)\n        self.waiting.append(message)\n", "        self.waiting.append(message)\n",
        _GRANTS,
    ),
    LendingMutant(
        "a message waits for the grants in its way", f"{_OFFICE}/lending.py",
        "if self._in_the_way(each):", "if False:", _STOPPED,
    ),
    LendingMutant(
        "a message that waits keeps its payload", f"{_OFFICE}/lending.py",
        "each._replace(payload=bytes(each.payload))", "each", _STOPPED,
    ),
    LendingMutant(
        "no log is lent beside a checkpoint", f"{_OFFICE}/lending.py",
        "if type(request) is Checkpoint:", "if False:", _OTHERS,
    ),
    LendingMutant(
        "a log is lent to one producer at a time", f"{_OFFICE}/lending.py",
        "if partition.log in self.loans:", "if False:", _GRANTS,
    ),
    LendingMutant(
        "a producer whose batches were refused gets no grant again", f"{_OFFICE}/lending.py",
        "self._distrusted.add(loan.peer)", "pass", _GRANTS,
    ),
    LendingMutant(
        "a log that others write is not lent for a while", f"{_OFFICE}/lending.py",
        "if loan.for_another:", "if False:", _GRANTS,
    ),
    LendingMutant(
        "grants of a lost connection end", f"{_OFFICE}/lending.py",
        "for loan in [loan for loan in self.loans.values() if loan.peer == peer]:", "for loan in list[Loan]():",
        _GRANTS,
    ),
    LendingMutant(
        "a log is lent to the owner of its producer", f"{_OFFICE}/lending.py",
        '        self._guard.check_owner(principal, owner, f"producer {message.producer_id:#x}")\n', "", _OTHERS,
    ),
    LendingMutant(
        "a grant ends with the right to write", f"{_OFFICE}/lending.py",
        'if not authorize(current(loan.owner), "write", f"topic:{loan.partition.topic}"):', "if False:", _OTHERS,
    ),
    LendingMutant(
        "a stopped producer loses its log", f"{_OFFICE}/loan.py",
        "if now_s - self._busy_since_s < PATIENCE_S:", "if True:", _STOPPED,
    ),
    LendingMutant(
        "what the broker appends by itself ends a grant", f"{_OFFICE}/loan.py",
        "if not self._overlay.commutes:", "if False:", _GRANTS,
    ),
    LendingMutant(
        "what waited for a log is written once it is taken back", f"{_OFFICE}/loan.py",
        "        self._overlays.dirty[self._overlay] = None  # what waited", "        # what waited", _STOPPED,
    ),
    LendingMutant(
        "no log is lent behind a change of rights", f"{_OFFICE}/lending.py",
        "        self._asking.clear()\n", "", _OTHERS,
    ),
    LendingMutant(
        "no log is lent to a connection that is gone", f"{_OFFICE}/lending.py",
        "if self._asking.pop(asking, None) is None:", "if False:", _STOPPED,
    ),
    LendingMutant(
        "logs that sync first are not lent", f"{_OFFICE}/conditions.py",
        'if partition.settings.commit != "written":', "if False:", _GRANTS,
    ),
]  # fmt: skip


if __name__ == "__main__":
    for at in map(int, sys.argv[1:] or range(len(MUTANTS))):
        print(f"{at}, {MUTANTS[at].says}: {verdict(MUTANTS[at])}", flush=True)
