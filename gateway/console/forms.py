"""What a page sends: read, and known to come from a page of this console.

Idea: a form has a token that only pages made for the same user have, since other pages cannot read them. It is made of
a secret of this process, so nothing is stored. Browsers also say where a request comes from, and that must be here:
unlike the API, the console takes nothing from pages that `cors` allows.

Contract: `read` raises Refusal for a form that is not ours. After a restart of the gateway, pages that were open are
refused once, and say so.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from ...broker.rights import Principal
from ..http.problems import Refusal

FORM = "application/x-www-form-urlencoded"
FIELD = "csrf"
FIELDS_MAX = 1100
FORM_BYTES_MAX = 256 << 10

Fields = TypeVar("Fields", bound=Struct)


class Forms:
    """Makes and checks tokens of forms, by user."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def token(self, principal: Principal) -> str:
        """What the forms of a page for a user have in the field `csrf`."""
        return hmac.new(self._secret, principal.name.encode(), hashlib.sha256).hexdigest()

    def read(self, body: bytes, headers: Mapping[bytes, bytes], principal: Principal, type_: type[Fields]) -> Fields:
        """The fields of a form that a page of this console sent. Raises Refusal, msgspec.ValidationError."""
        check_source(headers)
        if len(body) > FORM_BYTES_MAX:
            raise Refusal(413, "body_too_large", f"a form has at most {FORM_BYTES_MAX} bytes")
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise Refusal(400, "invalid_request", f"the form cannot be read: {error}") from None
        sent = dict(pairs)
        if len(sent) < len(pairs):
            raise Refusal(400, "invalid_request", "the form has two fields of one name")
        given = sent.pop(FIELD, "")
        if not hmac.compare_digest(given.encode(), self.token(principal).encode()):
            raise Refusal(403, "foreign_form", "this page is from before a restart: load it again, then repeat")
        return msgspec.convert({name: text for name, text in sent.items() if text}, type_, strict=False)


def check_source(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what a browser sends for a page from elsewhere. Raises Refusal."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    elsewhere = origin is not None and origin.partition(b"://")[2] != host
    if elsewhere or headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        raise Refusal(403, "foreign_origin", "only pages of this console may do this")
