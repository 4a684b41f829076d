"""Bytes and names that are markup: wherever one is shown, the page says it and does not become it."""

from __future__ import annotations

import pytest
from penstock.clients.arguments.quantities import EVENT_TIME_MAX, EVENT_TIME_MIN

from .conftest import Site
from .test_pages import read

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</code></pre><iframe src=//page.example>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "<div hx-get='/console/topics' hx-trigger='load' hx-on:click='alert(1)'>",
    "&lt;b&gt;",
    "]]><!--",
    "\x00<b>",
    "<a href='data:text/html,x'>",
    "\ud7ff\U0010ffff",
]


@pytest.fixture
def attacked(site: Site, penstock_client) -> Site:
    """Each text as a value, a key, the name and the value of a header, a reason, and the name of a worker."""
    penstock_client.create_topic("victim")
    with penstock_client.producer("victim") as producer:
        for text in HOSTILE:
            content = text.encode()
            producer.send(content, key=content, headers={text: content})
            producer.send(b'{"a":"%b"}' % content.replace(b'"', b'\\"').replace(b"\x00", b"\\u0000"))
    penstock_client.set_queue("victim", "q", max_attempts=1)
    for place, text in enumerate(HOSTILE):
        with penstock_client.worker("victim", group="q", name=text[:60] or "w") as worker:
            worker.reject(worker.fetch(max_records=1), reason=text)
            if place == 0:
                worker.release(worker.fetch(max_records=1))
    return site


PAGES = [
    "/",
    "/console/topics/victim",
    "/console/topics/victim/messages",
    "/console/queues/victim/q",
    "/console/groups",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_of_hostile_texts_is_well_formed(attacked, path):
    found = read(attacked.page(path))
    assert (found.wrong, found.open) == ([], [])


def test_the_texts_are_shown(attacked):
    page = attacked.page("/console/topics/victim/messages")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in attacked.page("/console/queues/victim/q")


def test_characters_that_hide_are_shown_wherever_they_are(site, penstock_client):
    hidden = "a\u202e\x1bb"
    penstock_client.create_topic("hiding")
    with penstock_client.producer("hiding") as producer:
        producer.send(b"x", headers={hidden: hidden.encode()})
    penstock_client.set_queue("hiding", "q", max_attempts=1)
    with penstock_client.worker("hiding", group="q", name="w\u202e") as worker:
        worker.reject(worker.fetch(max_records=1), reason=hidden)
    for path in ("/console/queues/hiding/q", "/console/topics/hiding/messages/0/0"):
        page = site.page(path)
        assert "a\\u202e\\u001bb" in page
        assert not {"\u202e", "\x1b"} & set(page)


@pytest.mark.parametrize("form", ["auto", "json", "text", "hex"])
def test_a_message_stays_text(attacked, form):
    for offset in range(2 * len(HOSTILE)):
        found = read(attacked.page(f"/console/topics/victim/messages/0/{offset}?form={form}"))
        assert (found.wrong, found.open) == ([], [])
        assert (found.tags.count("script"), found.tags.count("img")) == (3, 1)
        assert not {"iframe", "svg", "b"} & set(found.tags)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_asked_for_stays_text(attacked, text):
    from urllib.parse import quote

    for path in ("/console/topics?find=", "/console/queues?find=", "/console/topics/victim/messages?key="):
        page = attacked.page(path + quote(text))
        assert read(page).wrong == []
    for path in (f"/console/topics/{quote(text, safe='')}", f"/console/topics/victim/messages?time={quote(text)}"):
        answer = attacked.get(path)
        assert answer.status_code in (400, 403, 404)
        assert answer.headers["content-type"].startswith(("text/html", "application/json"))
        if answer.headers["content-type"].startswith("text/html"):
            assert read(answer.text).wrong == []


def test_hostile_parts_of_a_page_are_not_for_htmx(attacked):
    for path in ("/console/topics/victim/messages", "/console/topics/victim/messages/0/0", "/console/queues/victim/q"):
        page = attacked.page(path)
        assert 0 < page.index("<div hx-ignore>") < page.index("&lt;script&gt;")


def test_times_that_no_calendar_has_are_shown(site, penstock_client):
    penstock_client.create_topic("old")
    with penstock_client.producer("old") as producer:
        for time_us in (EVENT_TIME_MIN, EVENT_TIME_MAX):
            producer.send(b"x", timestamp=time_us)
    assert "9999-12-31" in site.page("/console/topics/old/messages")
    for offset in range(2):
        site.page(f"/console/topics/old/messages/0/{offset}")
