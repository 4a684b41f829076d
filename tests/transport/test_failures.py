"""An error raised in the broker is the same error in the client."""

from __future__ import annotations

import pytest
from penstock.storage.errors import Corrupt, Error, OutOfBounds, StorageFull
from penstock.transport import errors, failures
from penstock.transport.messages import Failure


def test_an_error_keeps_its_class_its_sentence_and_its_retry():
    again = failures.error_of(Failure(7, "storage_full", "no space left in /data", True, "tcp://h:1"))
    assert type(again) is StorageFull
    assert again.message == "no space left in /data"
    assert again.retry


def test_an_error_about_a_position_says_where_to_go_on():
    failure = Failure(1, OutOfBounds.code, "offset 9 is outside 0 to 5", offset=5)
    assert failures.error_of(failure).offset == 5


@pytest.mark.parametrize("kind", [kind for kind in Error.by_code.values() if kind is not errors.RemoteError])
def test_every_error_of_the_tree_can_come_over_the_wire(kind):
    assert type(failures.error_from(kind.code, "why")) is kind


def test_a_code_of_a_newer_broker_is_kept():
    error = failures.error_of(Failure(1, "quota_exceeded", "later", retry=True))
    assert isinstance(error, errors.RemoteError)
    assert (error.code, error.retry, error.message) == ("quota_exceeded", True, "later")
    assert errors.RemoteError.code == "remote"


def test_details_that_do_not_travel_have_defaults():
    error = failures.error_from(OutOfBounds.code, "offset 9 is outside 0 to 5")
    assert "0 to 5" in error.message
    assert error.offset == -1
    damage = failures.error_from("corrupt", "segment 3")
    assert isinstance(damage, Corrupt)
    assert damage.next_offset is None
