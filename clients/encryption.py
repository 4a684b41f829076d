"""End-to-end encryption of values: the broker, its disks, backups and gateways see ciphertext (decision 106).

    byte    0        1                  version
            1  .. 4  key id             big-endian
            5  .. 20 salt               random, new every SALT_RECORDS values
            21 .. 32 nonce              random
            33 ..    AES-256-GCM        of the value, and its tag of 16 bytes

Idea: a value is encrypted by itself, so whatever moves records moves it unharmed: dead letters, backups, forwarding,
other doors. It is encrypted under HKDF(key, salt), so the bound on random nonces is that of a salt, and no application
meets it. Nonces come from the system at each call: nothing that a fork or a restored machine could repeat is kept.

Contract: keys stay readable, since they route and compact; a value is bound to its key, and opens under no other. None
stays None, as compaction knows it. May be used by several threads. Must not know clients.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ..storage.errors import MissingLibrary, way_to_install
from .errors import CannotDecrypt, InvalidArgument

if TYPE_CHECKING:
    from ..storage.record import Record

VERSION = 1
KEY_BYTES = 32
SALT_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
SALT_RECORDS = 1 << 24
"""Values under one salt: two random nonces of so many are the same once in 2^49 salts."""

SALTS_REMEMBERED = 1024
"""Derived keys that are remembered: some for each producer whose values are read."""

_HEAD = struct.Struct(">BI16s12s")
OVERHEAD_BYTES = _HEAD.size + TAG_BYTES
_INFO = b"penstock value 1"


class Cipher:
    """Encrypts and decrypts values with AES-256-GCM. Needs the extra `encryption`."""

    def __init__(self, keys: Mapping[int, bytes], current: int | None = None) -> None:
        """Args:
            keys: 32 bytes each, by a number from 0 to 2^32 - 1 that stands in every value. All of them decrypt.
            current: the key that encrypts; may be left out where there is one, or to decrypt alone.

        Raises InvalidArgument, MissingLibrary.
        """
        for id_, key in keys.items():
            if not 0 <= id_ < 1 << 32:
                raise InvalidArgument(f"key id {id_} is none: 0 to {(1 << 32) - 1}")
            if len(key) != KEY_BYTES:
                raise InvalidArgument(f"key {id_} has {len(key)} bytes; a key has {KEY_BYTES}: Cipher.new_key()")
        if current is None and len(keys) == 1:
            current = next(iter(keys))
        if current is not None and current not in keys:
            raise InvalidArgument(f"key {current} is to encrypt, and is none of {sorted(keys)}")
        self._keys = {id_: bytes(key) for id_, key in keys.items()}
        self._current = current
        self._aead = lru_cache(SALTS_REMEMBERED)(self._derived)
        _library()  # or the first value would tell that it is missing
        self._salt, self._left = b"", 0

    @staticmethod
    def new_key() -> bytes:
        """A random key."""
        return secrets.token_bytes(KEY_BYTES)

    def __repr__(self) -> str:
        return f"Cipher(keys {sorted(self._keys)}, current {self._current})"

    def __reduce__(self) -> Any:
        raise TypeError("a Cipher holds keys, which are not pickled: make one in each process")

    # -- encrypting -----------------------------------------------------------------------------------

    def encrypt(self, value: bytes | None, key: bytes | None = None) -> bytes | None:
        """The value as it is sent, with the key that its record has. Raises InvalidArgument without a current key."""
        return self.encrypt_many([value], None if key is None else [key])[0]

    def encrypt_many(
        self, values: Iterable[bytes | None], keys: Sequence[bytes | None] | None = None
    ) -> list[bytes | None]:
        """Values as they are sent, each with the key that its record has, where they have any.

        Raises InvalidArgument: there is no current key, or another number of keys.
        """
        values, id_ = list(values), self._current
        if id_ is None:
            raise InvalidArgument("no key is to encrypt: say which is current")
        if keys is not None and len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
        salt = self._salt_for(len(values))
        seal, nonces, at = self._aead(id_, salt).encrypt, os.urandom(NONCE_BYTES * len(values)), 0
        sealed: list[bytes | None] = []
        begin = _HEAD.pack(VERSION, id_, salt, b"")[:-NONCE_BYTES]
        for number, value in enumerate(values):
            if value is None:
                sealed.append(None)
                continue
            nonce = nonces[at : at + NONCE_BYTES]
            at += NONCE_BYTES
            bound = b"" if keys is None else _bound(keys[number])
            sealed.append(begin + nonce + seal(nonce, value, bound))
        return sealed

    def _salt_for(self, count: int) -> bytes:
        """A salt with room for so many values."""
        if self._left < count:
            self._salt, self._left = os.urandom(SALT_BYTES), max(SALT_RECORDS, count)
        self._left -= count
        return self._salt

    # -- decrypting -----------------------------------------------------------------------------------

    def decrypt(self, value: bytes | None, key: bytes | None = None) -> bytes | None:
        """The value that was encrypted, with the key that its record has. Raises CannotDecrypt."""
        if value is None:
            return None
        if len(value) < OVERHEAD_BYTES or value[0] != VERSION:
            raise CannotDecrypt(f"a value of {len(value)} bytes is not encrypted, or by a newer version")
        _, id_, salt, nonce = _HEAD.unpack_from(value)
        if id_ not in self._keys:
            raise CannotDecrypt(f"the value is encrypted with key {id_}, and here are {sorted(self._keys)}: add it")
        try:
            return self._aead(id_, salt).decrypt(nonce, memoryview(value)[_HEAD.size :], _bound(key))
        except _library().InvalidTag:
            raise CannotDecrypt(
                f"the value does not open with key {id_}: the bytes of that key differ, or the value was damaged, or "
                "belongs to a record with another key"
            ) from None

    def decrypt_many(
        self, values: Iterable[bytes | None], keys: Sequence[bytes | None] | None = None
    ) -> list[bytes | None]:
        """The values that were encrypted, as `encrypt_many` takes them. Raises CannotDecrypt, InvalidArgument."""
        values = list(values)
        if keys is None:
            return [self.decrypt(value) for value in values]
        if len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")
        return [self.decrypt(value, key) for value, key in zip(values, keys, strict=True)]

    def open(self, record: Record) -> Record:
        """The record with its value decrypted. Raises CannotDecrypt, which names its place."""
        try:
            return msgspec.structs.replace(record, value=self.decrypt(record.value, record.key))
        except CannotDecrypt as error:
            raise CannotDecrypt(f"{record.topic}/{record.partition} offset {record.offset}: {error.message}") from None

    def _derived(self, id_: int, salt: bytes) -> Any:
        return _library().derived(self._keys[id_], salt)


def _bound(key: bytes | None) -> bytes:
    """What a value is bound to: no key, or this one."""
    return b"" if key is None else b"\1" + key


class _Library:
    """What is used of `cryptography`."""

    def __init__(self) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError as error:
            raise MissingLibrary(f"encryption needs cryptography: {way_to_install('encryption')}") from error
        self.InvalidTag: type[Exception] = InvalidTag
        self.derived: Callable[[bytes, bytes], Any] = lambda key, salt: AESGCM(
            HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=_INFO).derive(key)
        )


_library = lru_cache(1)(_Library)
