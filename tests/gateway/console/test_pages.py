"""The pages, as a browser without scripts gets them."""

from __future__ import annotations

import re
from collections import deque
from html.parser import HTMLParser

import pytest

from .conftest import Site, words

CLOSED = {"link", "meta", "img", "input", "br", "polyline"}


class Reader(HTMLParser):
    """Whether a page is well formed and can be used without seeing it."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.pointed: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag not in CLOSED:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"] or "")
        for name in ("aria-labelledby", "commandfor"):
            if name in given:
                self.pointed.append(given[name] or "")
        if "style" in given or any(name.startswith(("on", "hx-on")) for name in given):
            self.wrong.append(f"{tag} has code or style: {given}")
        if tag == "th" and given.get("scope") not in ("col", "row"):
            self.wrong.append("th without scope")
        if tag in ("input", "select") and given.get("type") != "hidden" and "label" not in self.open:
            self.wrong.append(f"{given.get('name')} without a label")
        if tag == "img" and "alt" not in given:
            self.wrong.append("img without alt")
        if tag == "svg" and not given.get("aria-label"):
            self.wrong.append("svg without a label")
        if tag == "script" and not given.get("src"):
            self.wrong.append("a script in the page")
        for name in ("href", "src", "action", "hx-get"):
            if name in given and not (given[name] or "").startswith(("/", "#")):
                self.wrong.append(f"{name} leads elsewhere: {given[name]}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in CLOSED:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in CLOSED and (not self.open or self.open.pop() != tag):
            self.wrong.append(f"</{tag}> closes nothing")


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture
def busy(site: Site, penstock_client) -> Site:
    """A site with something in each view."""
    penstock_client.create_topic("orders", partitions=2)
    penstock_client.create_topic("empty")
    with penstock_client.producer("orders") as producer:
        for number in range(120):
            producer.send(b'{"number":%d}' % number, key=b"even" if number % 2 == 0 else b"odd", partition=0)
        producer.send(b"\xff\x00", headers={"trace": b"17"}, partition=1)
    penstock_client.commit_group("orders", "report", {0: 100})
    penstock_client.set_queue("orders", "kitchen", max_attempts=1)
    with penstock_client.worker("orders", group="kitchen", name="cook") as worker:
        tasks = worker.fetch(max_records=3)
        worker.reject(tasks[:1], reason="the oven is cold")
        worker.nack(tasks[1:2], reason="no eggs")
        worker.release(tasks[2:])
    site.page("/")
    site.later()
    return site


PAGES = [
    "/", "/console/topics", "/console/topics?find=ord&sort=rate&page=1", "/console/topics/orders",
    "/console/topics/empty", "/console/topics/orders/messages", "/console/topics/empty/messages",
    "/console/topics/orders/messages?key=odd", "/console/topics/orders/messages/0/5",
    "/console/topics/orders/messages/1/0?form=hex", "/console/groups", "/console/groups/orders/report",
    "/console/queues", "/console/queues/orders/kitchen", "/console/queues?find=nothing",
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_well_formed_and_for_all_to_use(busy, path):
    found = read(busy.page(path))
    assert found.wrong == []
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert set(found.pointed) <= set(found.ids)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_not_stored_and_runs_no_code_of_others(busy, path):
    headers = busy.get(path).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert not {"script-src", "style-src"} & policy.keys()
    assert "unsafe" not in headers["content-security-policy"]
    assert (policy["frame-ancestors"], policy["form-action"], policy["base-uri"]) == ("'none'", "'self'", "'none'")
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_every_link_of_a_page_leads_somewhere(busy):
    seen: set[str] = set()
    left = deque(["/"])
    while left:
        path = left.popleft().replace("&amp;", "&")
        if path in seen or len(seen) > 150:
            continue
        seen.add(path)
        found = busy.get(path)
        assert found.status_code == 200, path
        if found.headers["content-type"].startswith("text/html"):
            left += re.findall(r'(?:href|src|hx-get)="(/[^"#]*)"', found.text)
    assert "/console/queues/orders/kitchen" in seen
    assert any(path.startswith("/console/static/console.js?v=") for path in seen)


def test_the_overview_says_what_to_look_at(busy):
    text = words(busy.page("/"))
    assert "Worth a look" in text
    assert "orders/ kitchen : Dead-lettered tasks: 2." in text
    assert "orders 0 /s 121" in text


def test_a_broker_without_topics_says_how_to_begin(site):
    text = words(site.page("/"))
    assert "All is well" in text
    assert "penstock topic create orders" in text
    for path in ("/console/topics", "/console/groups", "/console/queues"):
        assert 'class="empty"' in site.page(path)


def test_topics_are_found_and_ordered(busy):
    names = re.compile(r'id="topic-([\w.-]+)"')
    assert names.findall(busy.page("/console/topics")) == ["empty", "orders"]
    assert names.findall(busy.page("/console/topics?sort=records")) == ["orders", "empty"]
    assert names.findall(busy.page("/console/topics?find=ORD")) == ["orders"]
    assert "No topic has “zzz” in its name." in words(busy.page("/console/topics?find=zzz"))


def test_a_long_list_has_pages(site, penstock_client):
    for number in range(101):
        penstock_client.create_topic(f"t{number:03}")
    first, second = site.page("/console/topics"), site.page("/console/topics?page=2")
    assert ("t099" in first, "t100" in first, "t099" in second, "t100" in second) == (True, False, False, True)
    assert 'href="/console/topics?page=2"' in first
    assert "Page 2 of 2" in site.page("/console/topics?page=99")


def test_a_topic_has_partitions_groups_queues_and_settings(busy):
    text = words(busy.page("/console/topics/orders"))
    for each in ("report", "kitchen", "retention_s not set", "commit durable", "max_record_bytes 16.0 MiB"):
        assert each in text


def test_a_group_says_how_far_behind_it_is(busy):
    text = words(busy.page("/console/groups/orders/report"))
    assert "Lag 21 messages to commit" in text
    assert "No consumer is a member now." in text


def test_a_queue_has_workers_and_dead_letters(busy):
    text = words(busy.page("/console/queues/orders/kitchen"))
    for each in ("cook", "the oven is cold", "no eggs", "Dead 2 failed for good", "orders-0-0", "max_attempts 1"):
        assert each in text


# -- the message browser --------------------------------------------------------------------------------------


def offsets(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'/messages/\d+/(\d+)"', page)]


def link(page: str, rel: str) -> str | None:
    found = re.search(rf'<a rel="{rel}" href="([^"]*)"', page)
    return found[1].replace("&amp;", "&") if found else None


def test_the_browser_begins_with_the_newest(busy):
    page = busy.page("/console/topics/orders/messages")
    assert offsets(page) == list(range(119, 69, -1))
    assert link(page, "next") is None
    older = busy.page(link(page, "prev"))
    assert offsets(older) == list(range(69, 19, -1))
    oldest = busy.page(link(older, "prev"))
    assert offsets(oldest)[-1] == 0
    assert link(oldest, "prev") is None
    assert offsets(busy.page(link(oldest, "next")))[-1] == 50


@pytest.mark.parametrize(("asked", "first"), [("5", 5), ("0", 0), ("119", 119), ("9999", None), ("120", None)])
def test_messages_are_found_by_offset(busy, asked, first):
    page = busy.page(f"/console/topics/orders/messages?partition=0&offset={asked}&time=&key=")
    found = offsets(page)
    assert (found[-1] if found else None) == first


def test_messages_are_found_by_time(busy, penstock_broker, penstock_client):
    penstock_broker.advance(60)
    when = penstock_broker.clock().wall_us // 1_000_000
    with penstock_client.producer("orders") as producer:
        producer.send(b"late", partition=0)
    from datetime import UTC, datetime

    time = datetime.fromtimestamp(when, UTC).isoformat().replace("+00:00", "Z")
    assert offsets(busy.page(f"/console/topics/orders/messages?partition=0&time={time}")) == [120]
    answer = busy.get("/console/topics/orders/messages?time=2026-01-01T00:00:00")
    assert (answer.status_code, "has no zone" in answer.text) == (400, True)


@pytest.mark.parametrize("key", ["odd", "0x6f6464"])
def test_messages_are_found_by_key(busy, key):
    found = offsets(busy.page(f"/console/topics/orders/messages?partition=0&key={key}"))
    assert found == list(range(99, 0, -2))
    page = busy.page(f"/console/topics/orders/messages?partition=0&key={key}")
    assert offsets(busy.page(link(page, "next"))) == list(range(119, 100, -2))


def test_a_key_is_looked_for_in_its_partition(busy, penstock_client):
    with penstock_client.producer("orders") as producer:
        place = {producer.send(b"x", key=b"one key") for _ in range(1)}
    assert len(place) == 1
    assert len(offsets(busy.page("/console/topics/orders/messages?key=one+key"))) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/console/topics/nope", 404),
        ("/console/topics/nope/messages", 404),
        ("/console/topics/orders/messages?partition=2", 404),
        ("/console/topics/orders/messages?partition=-1", 404),
        ("/console/topics/orders/messages?partition=²", 404),
        ("/console/topics/orders/messages?offset=x", 400),
        ("/console/topics/orders/messages?offset=1&time=latest", 400),
        ("/console/topics/orders/messages?key=0xzz", 400),
        ("/console/topics/orders/messages?form=html", 400),
        ("/console/topics/orders/messages?other=1", 400),
        ("/console/topics/orders/messages/0/120", 404),
        ("/console/topics/orders/messages/7/0", 404),
        ("/console/topics/orders/messages/0/x", 400),
        ("/console/groups/orders/nope", 404),
        ("/console/queues/orders/nope", 404),
        ("/console/topics?page=x", 400),
        ("/console/static/nope.js", 404),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(busy, path, status):
    answer = busy.get(path)
    assert answer.status_code == status
    if "static" not in path:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "content-security-policy" in answer.headers
        assert read(answer.text).wrong == []


def test_a_message_is_shown_in_the_form_that_is_asked_for(busy):
    path = "/console/topics/orders/messages/0/5"
    assert "{\n  &#34;number&#34;: 5\n}" in busy.page(path)
    assert "{&#34;number&#34;:5}" in busy.page(f"{path}?form=text")
    assert "7b 22 6e" in busy.page(f"{path}?form=hex")
    other = busy.page("/console/topics/orders/messages/1/0")
    assert ("ff 00" in other, "trace" in other, "17" in other) == (True, True, True)


def test_a_message_that_was_removed_is_not_another_one(busy, penstock_client):
    penstock_client.trim("orders", 0, records=1)
    first = penstock_client.topic("orders").partitions[0].first
    assert first > 0
    assert busy.get(f"/console/topics/orders/messages/0/{first - 1}").status_code == 404
    assert busy.get(f"/console/topics/orders/messages/0/{first}").status_code == 200


def test_a_file_is_kept_by_browsers_and_named_by_its_bytes(site):
    page = site.page("/")
    for address in re.findall(r'(?:href|src)="(/console/static/[^"]*)"', page):
        found = site.get(address)
        assert "immutable" in found.headers["cache-control"]
        assert found.headers["x-content-type-options"] == "nosniff"
    assert {"text/css", "text/javascript"} <= {
        site.get(address).headers["content-type"].partition(";")[0]
        for address in re.findall(r'"(/console/static/[^"]*)"', page)
    }


def test_the_licence_and_version_of_each_library_is_said(site):
    from importlib import resources

    files = [each.name for each in resources.files("penstock.gateway.console").joinpath("static").iterdir()]
    told = site.get("/console/static/VENDORED.txt").text
    assert [name for name in files if ".min." in name and f"`{name}`" not in told] == []
    for each in ("0BSD", "MIT License", "4.0.1", "2.1.1", "1.6.32", "Leon Sorokin", "Pico"):
        assert each in told
