"""Keys of CURVE, by which programs and brokers know each other over tcp://.

Idea: a key is a secret of 32 bytes, and its public half follows from it. A program's key names the broker's public
half too, so that it talks to no other. A file has both, in lines, for its owner alone.

Contract: a secret is shown by nothing but `secret`, and stands in no message. Keys are written as 64 digits in hex.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from typing import NoReturn, TypeAlias

from .errors import InvalidKey

VARIABLE = "PENSTOCK_KEY"
"""Names the key file of programs that are given no other."""

_HEX = re.compile(r"[0-9a-f]{64}")
_LINE = re.compile(r"(secret|broker) ([0-9a-f]{64})")
_OTHERS = 0o077


class Key:
    """What a program, or a broker, authenticates with over tcp://. No `repr` shows the secret.

    `broker` is the public half of the broker's key; "" in the broker's own.
    """

    __slots__ = ("_secret", "broker")

    def __init__(self, secret: str, *, broker: str = "") -> None:
        """A key from where secrets are kept.

        Args:
            secret: 64 digits in hex.
            broker: the public half of the broker's key, as many digits; programs need it to connect.

        Raises: InvalidKey.
        """
        if not isinstance(secret, str) or not _HEX.fullmatch(secret):
            raise InvalidKey("the secret of a key is 64 digits in hex: make one with penstock key generate")
        if not isinstance(broker, str) or (broker and not _HEX.fullmatch(broker)):
            raise InvalidKey(f"{broker!r} is no public key of a broker: 64 digits in hex, as penstock key show says")
        self._secret = secret
        self.broker = broker

    @classmethod
    def generate(cls, *, broker: str = "") -> Key:
        """A new key.

        Args:
            broker: the public half of the broker's key, for one of a program.

        Raises: InvalidKey.
        """
        return cls(secrets.token_hex(32), broker=broker)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Key:
        """The key of a file.

        Args:
            path: of a file that only its owner can read, as `penstock key generate` makes it.

        Raises: InvalidKey.
        """
        try:
            with open(path, encoding="utf-8") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                lines = file.read(4096).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidKey(
                f"the key file {path} cannot be read: {getattr(error, 'strerror', None) or 'no text'}"
            ) from None
        if mode & _OTHERS:
            raise InvalidKey(f"the key file {path} is open to other users of this machine: chmod 600 {path}")
        found = [_LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
        named = {each[1]: each[2] for each in found if each}
        if len(named) != len(found) or "secret" not in named:
            raise InvalidKey(f"{path} is no key file: make one with penstock key generate")
        return cls(named["secret"], broker=named.get("broker", ""))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for its owner alone.

        Args:
            path: of the file, which must be new.

        Raises: InvalidKey.
        """
        lines = ["# A key of penstock: keep it secret.", f"# Its public half: {self.public}", f"secret {self._secret}"]
        lines += [f"broker {self.broker}"] if self.broker else []
        try:
            descriptor = os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write("".join(f"{line}\n" for line in lines))
                    file.flush()
                    os.fsync(descriptor)
            except BaseException:
                os.unlink(path)  # a part of a key is none, and would be in the way of the next try
                raise
        except FileExistsError:
            raise InvalidKey(f"{path} exists already: name another file for the new key") from None
        except OSError as error:
            raise InvalidKey(f"the key file {path} cannot be written: {error.strerror}") from error

    @property
    def secret(self) -> str:
        """The secret half, in hex."""
        return self._secret

    @property
    def public(self) -> str:
        """The public half, in hex: what `penstock key add` takes."""
        from .zmq_keys import public_of  # ZeroMQ is loaded when a key is used

        return public_of(bytes.fromhex(self._secret)).hex()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Key is not pickled, since that would copy its secret: send the path of its file")

    def __repr__(self) -> str:
        return f"Key(public={self.public!r}, broker={self.broker!r})"


KeyLike: TypeAlias = Key | str | os.PathLike[str] | None
"""A key, or the path of its file."""


def key_of(given: KeyLike) -> Key | None:
    """A key, that of a file, or that of the file in PENSTOCK_KEY. Raises InvalidKey."""
    if given is None:
        given = os.environ.get(VARIABLE) or None
    return Key.read(given) if isinstance(given, str | os.PathLike) else given


def check_key(given: KeyLike) -> None:
    """Raise InvalidKey for what can be no key."""
    if not isinstance(given, Key | str | os.PathLike | None):
        raise InvalidKey(f"key is a {type(given).__name__}: give a Key, or the path of a key file")
