"""What the console takes from a page: its own forms, and nothing from elsewhere."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
import pytest
from penstock.broker.rights import Principal
from penstock.gateway.console.forms import FORM_BYTES_MAX, Forms, check_source
from penstock.gateway.http.problems import Refusal

ANN, BEN = Principal("ann"), Principal("ben")
HEADERS = {b"host": b"localhost:8080", b"origin": b"http://localhost:8080", b"sec-fetch-site": b"same-origin"}
FORMS = Forms(b"secret")


class Fields(msgspec.Struct, forbid_unknown_fields=True):
    count: int = 0
    text: str = "none"


def read(body: dict[str, str] | bytes, headers: dict[bytes, bytes] = HEADERS, principal: Principal = ANN) -> Fields:
    return FORMS.read(body if isinstance(body, bytes) else urlencode(body).encode(), headers, principal, Fields)


def test_a_form_has_the_token_of_its_user():
    assert read({"csrf": FORMS.token(ANN), "count": "3", "text": "ü&="}) == Fields(3, "ü&=")
    assert read({"csrf": FORMS.token(ANN), "count": "", "text": ""}) == Fields()
    assert read({"csrf": FORMS.token(BEN)}, principal=BEN) == Fields()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "foreign_form"),
        ({"csrf": ""}, "foreign_form"),
        ({"csrf": FORMS.token(BEN)}, "foreign_form"),
        ({"csrf": Forms(b"of before").token(ANN)}, "foreign_form"),
        ({"csrf": "ü"}, "foreign_form"),
        (b"csrf=a&csrf=b", "invalid_request"),
        (b"\xff", "invalid_request"),
        (b"a=1&" * 2000, "invalid_request"),
        (b"a" * (FORM_BYTES_MAX + 1), "body_too_large"),
    ],
)
def test_other_forms_are_refused(body, code):
    with pytest.raises(Refusal) as refused:
        read(body)
    assert refused.value.problem.code == code


def test_fields_that_no_form_has_are_refused():
    with pytest.raises(msgspec.ValidationError):
        read({"csrf": FORMS.token(ANN), "other": "1"})


@pytest.mark.parametrize(
    "change",
    [
        {b"origin": b"https://page.example"},
        {b"origin": b"null"},
        {b"origin": b"http://localhost:8081"},
        {b"origin": b""},
        {b"sec-fetch-site": b"cross-site"},
        {b"sec-fetch-site": b"same-site"},
    ],
)
def test_a_page_from_elsewhere_may_not(change):
    with pytest.raises(Refusal, match="only pages of this console"):
        check_source({**HEADERS, **change})
    with pytest.raises(Refusal):
        read({"csrf": FORMS.token(ANN)}, {**HEADERS, **change})


def test_a_client_without_these_headers_needs_the_token_alone():
    check_source({b"host": b"localhost"})
    check_source({b"host": b"h", b"sec-fetch-site": b"none"})
    check_source({b"host": b"h", b"origin": b"https://h"})


def test_secrets_differ():
    assert Forms().token(ANN) != Forms().token(ANN)
