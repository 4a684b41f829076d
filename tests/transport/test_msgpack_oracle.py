"""What msgspec writes is what msgpack, the format's own library, reads, and the reverse: for every message."""

from __future__ import annotations

from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.transport import codec, messages
from support.generated import plain, values

KINDS = [(codec.decode_request, kind) for kind in get_args(messages.Request)]
KINDS += [(codec.decode_answer, kind) for kind in get_args(messages.Answer)]


@pytest.mark.parametrize(("decode", "kind"), KINDS, ids=lambda each: each.__name__)
@given(data=st.data())
def test_both_libraries_agree_on_every_message(decode: Any, kind: type[messages.Message], data: st.DataObject) -> None:
    message = data.draw(values(kind))
    frame = codec.encode(message)
    assert msgpack.unpackb(frame, strict_map_key=False) == plain(message)
    payload = b"a batch" if kind in codec.CARRIES_BATCHES else b""
    found, _ = decode([msgpack.packb(plain(message)), payload] if payload else [msgpack.packb(plain(message))])
    assert found == message
    assert codec.encode(found) == frame
