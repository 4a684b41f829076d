"""Values that only their readers can read: what opens them, what does not, and that no nonce comes twice."""

from __future__ import annotations

import asyncio
import copy
import os
import sys
from typing import Any

import pytest
from penstock import aio
from penstock.clients import encryption
from penstock.clients.encryption import OVERHEAD_BYTES, Cipher
from penstock.clients.errors import CannotDecrypt, InvalidArgument
from penstock.storage.errors import MissingLibrary

pytest.importorskip("cryptography", reason="needs the extra encryption: pip install '.[dev]'")

A, B = b"a" * 32, b"b" * 32
VALUES: list[bytes | None] = [b"", b"one", None, b"x" * 100_000]
KEYS: list[bytes | None] = [b"k", None, b"k", b""]
GOLDEN = (
    "0100000007"
    + "00" * 16
    + "01" * 12  # version and key, salt, nonce
    + "ea21326ba59eb759a6eb72daeb41aea6ac5e1eac"
)


def nonces(sealed: list[bytes | None]) -> list[bytes]:
    return [value[5:33] for value in sealed if value is not None]


def test_values_come_back_with_their_keys_and_nulls_stay_nulls():
    cipher = Cipher({1: A})
    sealed = cipher.encrypt_many(VALUES, KEYS)
    assert [None if each is None else len(each) - OVERHEAD_BYTES for each in sealed] == [0, 3, None, 100_000]
    assert sealed != cipher.encrypt_many(VALUES, KEYS)
    assert cipher.decrypt_many(sealed, KEYS) == VALUES
    assert cipher.decrypt_many(cipher.encrypt_many(VALUES)) == VALUES
    assert cipher.decrypt(cipher.encrypt(b"v", b"k"), b"k") == b"v"
    assert cipher.encrypt(None) is cipher.decrypt(None) is None


def test_the_bytes_stay_as_they_are(monkeypatch: pytest.MonkeyPatch):
    drawn = iter([b"\0" * 16, b"\1" * 12])
    monkeypatch.setattr(encryption.os, "urandom", lambda count: next(drawn))
    sealed = Cipher({7: A}).encrypt(b"four", b"key")
    assert sealed is not None
    assert sealed.hex() == GOLDEN
    assert Cipher({7: A}).decrypt(bytes.fromhex(GOLDEN), b"key") == b"four"


def test_keys_are_changed_with_an_overlap():
    old, both, new = Cipher({1: A}), Cipher({1: A, 2: B}, current=2), Cipher({2: B})
    before, after = old.encrypt(b"v"), both.encrypt(b"v")
    assert both.decrypt(before) == both.decrypt(after) == new.decrypt(after) == b"v"
    with pytest.raises(CannotDecrypt, match=r"with key 1, and here are \[2\]: add it"):
        new.decrypt(before)
    reader = Cipher({1: A, 2: B})
    assert reader.decrypt(before) == b"v"
    with pytest.raises(InvalidArgument, match="say which is current"):
        reader.encrypt(b"v")


def test_what_was_changed_or_moved_does_not_open():
    cipher = Cipher({1: A})
    sealed = cipher.encrypt(b"v", b"k")
    assert sealed is not None
    for place in range(len(sealed)):
        other = bytearray(sealed)
        other[place] ^= 1
        with pytest.raises(CannotDecrypt):
            cipher.decrypt(bytes(other), b"k")
        with pytest.raises(CannotDecrypt):
            cipher.decrypt(sealed[:place], b"k")
    for key in (None, b"", b"l", b"kk"):
        with pytest.raises(CannotDecrypt, match="another key"):
            cipher.decrypt(sealed, key)
    with pytest.raises(CannotDecrypt, match="key 1: the bytes of that key differ"):
        Cipher({1: B}).decrypt(sealed, b"k")
    with pytest.raises(CannotDecrypt, match="a value of 5 bytes is not encrypted"):
        cipher.decrypt(b"plain")
    with pytest.raises(CannotDecrypt):
        cipher.decrypt(cipher.encrypt(b"v", b""))


def test_no_nonce_comes_twice_also_not_after_a_fork():
    cipher = Cipher({1: A})
    cipher.encrypt(b"")
    reads, writes = os.pipe()
    child = os.fork()
    found = nonces(cipher.encrypt_many([b""] * 1000))
    if not child:
        os.write(writes, b"".join(found))
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert len(told) == 28_000
    assert len({*found, *(told[at : at + 28] for at in range(0, len(told), 28))}) == 2000


def test_a_salt_is_for_so_many_values(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encryption, "SALT_RECORDS", 3)
    cipher = Cipher({1: A})
    salts = [each[:16] for _ in range(5) for each in nonces(cipher.encrypt_many([b"", b""]))]
    assert [salts.index(salt) for salt in salts] == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    single = [nonces([cipher.encrypt(b"")])[0][:16] for _ in range(6)]
    assert len(set(single)) in (2, 3)
    assert len({each[:16] for each in nonces(cipher.encrypt_many([b""] * 10))}) == 1


@pytest.mark.parametrize(
    ("keys", "current", "says"),
    [
        ({1: b"short"}, None, "key 1 has 5 bytes"), ({-1: A}, None, "key id -1"), ({1 << 32: A}, None, "id 4294967296"),
        ({1: A}, 2, "key 2 is to encrypt"), ({}, 1, "none of \\[\\]"),
    ],
)  # fmt: skip
def test_keys_that_cannot_be_are_refused(keys: dict[int, bytes], current: int | None, says: str):
    with pytest.raises(InvalidArgument, match=says):
        Cipher(keys, current)


def test_each_value_has_its_key():
    cipher = Cipher({1: A})
    for call in (cipher.encrypt_many, cipher.decrypt_many):
        with pytest.raises(InvalidArgument, match="1 keys for 2 values"):
            call([b"", b""], [b""])


def test_keys_leak_neither_by_a_copy_nor_in_words():
    cipher = Cipher({1: A})
    assert repr(cipher) == "Cipher(keys [1], current 1)"
    with pytest.raises(TypeError, match="make one in each process"):
        copy.copy(cipher)
    assert len({Cipher.new_key(), Cipher.new_key()}) == 2
    assert len(Cipher.new_key()) == 32


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    encryption._library.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingLibrary, match=r"\[encryption\]"):
        Cipher({1: A})
    encryption._library.cache_clear()


def test_the_broker_has_ciphertext_and_its_readers_have_the_values(penstock_client: Any):
    cipher = Cipher({1: A})
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        producer.send_many(cipher.encrypt_many([b"one", b"two"], [b"a", b"b"]), keys=[b"a", b"b"])
    with penstock_client.consumer("t") as consumer:
        stored = consumer.fetch(2)
    assert all(b"one" not in record.value and b"two" not in record.value for record in stored)
    assert [(each.value, each.key) for each in map(cipher.open, stored)] == [(b"one", b"a"), (b"two", b"b")]
    with pytest.raises(CannotDecrypt, match=r"^t/0 offset 1: the value is encrypted with key 1, and here are \[2\]"):
        Cipher({2: B}).open(stored[1])


def test_with_an_event_loop_it_is_the_same(penstock_broker: Any):
    cipher = Cipher({1: A})

    async def life() -> list[bytes | None]:
        async with await aio.connect(penstock_broker.url) as client:
            await client.create_topic("t")
            async with await client.producer("t") as producer:
                await producer.send(cipher.encrypt(b"v", b"k"), key=b"k")
            async with await client.consumer("t") as consumer:
                return [cipher.open(record).value for record in await consumer.fetch(1)]

    assert asyncio.run(life()) == [b"v"]
