"""What msgspec writes is what msgpack, the format's own library, reads, and the reverse: for every effect and state."""

from __future__ import annotations

from typing import get_args

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.broker.engine.logs.catalogue import CatalogueBody
from penstock.broker.engine.tables import effects
from penstock.broker.engine.tables.state import SnapshotBody
from support.generated import plain, values


@pytest.mark.parametrize("kind", get_args(effects.AnyEffect), ids=lambda each: each.__name__)
@given(data=st.data())
def test_both_libraries_agree_on_every_effect(kind: type[effects.Effect], data: st.DataObject) -> None:
    found = data.draw(st.lists(values(kind), min_size=1, max_size=2))
    column = effects.encode(found)
    assert msgpack.unpackb(column, strict_map_key=False) == plain(found)
    assert effects.decode(msgpack.packb(plain(found))) == found
    assert effects.encode(effects.decode(column)) == column


@pytest.mark.parametrize("kind", [SnapshotBody, CatalogueBody])
@given(data=st.data())
def test_both_libraries_agree_on_every_snapshot(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    body = data.draw(values(kind))
    assert msgpack.unpackb(msgspec.msgpack.encode(body), strict_map_key=False) == plain(body)
    assert msgspec.msgpack.decode(msgpack.packb(plain(body)), type=kind) == body
