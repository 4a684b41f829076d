"""What viewers change: with the rights of the API, from a page of the console, by POST alone."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from penstock.gateway.console.actions import ACTIONS

from .conftest import SAME_ORIGIN, Site, words

QUEUE, GROUP = "/console/queues/orders/kitchen", "/console/groups/orders/report"
PATHS = {name: f"{QUEUE if kind == 'queues' else GROUP}/{name}" for name, (kind, _) in ACTIONS.items()}
FIELDS = {"pause": {}, "resume": {}, "redrive": {}, "seek": {"to": "earliest"}}


@pytest.fixture
def shop(site: Site, penstock_client) -> Site:
    """A topic with a queue of three dead letters and a group."""
    penstock_client.create_topic("orders")
    with penstock_client.producer("orders") as producer:
        for number in range(5):
            producer.send(b"order %d" % number)
    penstock_client.set_queue("orders", "kitchen", max_attempts=1)
    penstock_client.commit_group("orders", "report", {0: 3})
    with penstock_client.worker("orders", group="kitchen") as worker:
        tasks = worker.fetch(max_records=5)
        worker.reject(tasks[:2], reason="no eggs")
        worker.reject(tasks[2:3], reason="no <b>flour</b>")
        worker.release(tasks[3:])
    return site


def test_a_queue_pauses_and_resumes(shop, penstock_client, penstock_broker):
    page = shop.post(f"{QUEUE}/pause").text
    assert "Paused until it is resumed. Tasks that workers hold go on." in page
    assert penstock_client.queue("orders", "kitchen").paused_until.year > 9000
    assert 'command="show-modal">Resume…' in page
    page = shop.post(f"{QUEUE}/resume").text
    assert "Resumed." in page
    assert penstock_client.queue("orders", "kitchen").paused_until is None
    assert 'command="show-modal">Resume…' not in page


def test_a_pause_may_end_by_itself(shop, penstock_client):
    from datetime import UTC, datetime

    assert "Paused for 10 min." in shop.post(f"{QUEUE}/pause", seconds="600").text
    until = penstock_client.queue("orders", "kitchen").paused_until
    assert abs(until - datetime.now(UTC) - timedelta(seconds=600)) < timedelta(seconds=60)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", str(1 << 70)])
def test_a_pause_has_a_sensible_length(shop, penstock_client, seconds):
    assert shop.post(f"{QUEUE}/pause", seconds=seconds).status_code == 400
    assert penstock_client.queue("orders", "kitchen").paused_until is None


@pytest.mark.parametrize(
    ("fields", "said", "left"),
    [
        ({}, "Redrove 3 tasks, from attempt 1.", 0),
        ({"reason": "eggs"}, "Redrove 2 tasks", 1),
        ({"id": "orders-0-2"}, "Redrove 1 task,", 2),
        ({"id": " orders-0-1 ", "per_s": "2.5"}, "Redrove 1 task,", 2),
        ({"reason": "no such reason"}, "No dead letter matches", 3),
    ],
)
def test_dead_letters_are_redriven(shop, penstock_client, fields, said, left):
    assert said in shop.post(f"{QUEUE}/redrive", **fields).text
    assert penstock_client.queue("orders", "kitchen").dead_lettered == left


@pytest.mark.parametrize(
    ("fields", "offset"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 5),
        ({"to": "time", "time": "2000-01-01T00:00:00Z"}, 0),
        ({"to": "earliest", "time": "nonsense that is not asked for"}, 0),
    ],
)
def test_a_group_is_moved(shop, penstock_client, fields, offset):
    page = shop.post(f"{GROUP}/seek", **fields).text
    assert "Moved to" in words(page)
    assert penstock_client.committed("orders", "report")[0].offset == offset


def test_an_action_that_is_refused_says_why(shop, penstock_client):
    answer = shop.post(f"{GROUP}/seek", to="time", time="yesterday")
    assert (answer.status_code, "is not" in answer.text, "<html" in answer.text) == (400, True, True)
    assert shop.post(f"{GROUP}/seek", to="nowhere").status_code == 400
    assert shop.post(f"{QUEUE}/redrive", id="nonsense").status_code == 400
    with penstock_client.consumer("orders", group="report"):
        answer = shop.post(f"{GROUP}/seek", to="latest")
    assert (answer.status_code, "In conflict" in answer.text) == (409, True)
    assert shop.post("/console/queues/nope/kitchen/pause").status_code == 404


# -- forged requests ------------------------------------------------------------------------------------------


def unchanged(client) -> bool:
    queue = client.queue("orders", "kitchen")
    return (queue.dead_lettered, queue.paused_until, client.committed("orders", "report")[0].offset) == (3, None, 3)


@pytest.mark.parametrize("name", PATHS)
def test_an_action_is_a_post(shop, penstock_client, name):
    answer = shop.get(PATHS[name])
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert unchanged(penstock_client)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("token", [None, "", "0" * 64])
def test_an_action_needs_the_token_of_a_page(shop, penstock_client, name, token):
    fields = {**FIELDS[name], **({} if token is None else {"csrf": token})}
    answer = shop.post(PATHS[name], fields)
    assert (answer.status_code, "from before a restart" in answer.text) == (403, True)
    assert unchanged(penstock_client)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://page.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_an_action_comes_from_no_other_page(shop, penstock_client, name, headers):
    answer = shop.post(PATHS[name], headers={**SAME_ORIGIN, **headers}, **FIELDS[name])
    assert answer.status_code == 403
    assert unchanged(penstock_client)


@pytest.mark.parametrize("origins", [("*",), ("https://page.example",)])
def test_pages_that_may_use_the_api_may_not_use_the_console(shop, penstock_client, origins):
    shop.door.origins = origins
    answer = shop.post(PATHS["redrive"], headers={**SAME_ORIGIN, "origin": "https://page.example"})
    assert answer.status_code == 403
    assert unchanged(penstock_client)


def test_an_action_is_a_form(shop, penstock_client):
    answer = shop.post(PATHS["pause"], headers={**SAME_ORIGIN, "content-type": "text/plain"})
    assert answer.status_code == 415
    assert unchanged(penstock_client)


def test_a_name_from_elsewhere_is_refused(shop):
    shop._client.base_url = "http://127.0.0.1:8080"
    assert shop.get("/", host="page.example:8080").status_code == 403
    assert shop.get("/", host="localhost:8080").status_code == 200


# -- rights ---------------------------------------------------------------------------------------------------

GRANTS = (
    "see group:orders/*",
    "read topic:orders",
    "read group:orders/*",
    "manage group:orders/*",
    "manage topic:orders",
)


@pytest.mark.parametrize("held", [each for n in range(len(GRANTS) + 1) for each in itertools.combinations(GRANTS, n)])
def test_what_a_viewer_may_do_and_what_a_page_offers_are_the_same(shop, held):
    shop.be(*held)
    pages = {"queues": shop.get(QUEUE), "groups": shop.get(GROUP)}
    for name, (kind, _) in ACTIONS.items():
        offered = f'action="{PATHS[name]}"' in pages[kind].text
        done = shop.post(PATHS[name], **FIELDS[name])
        assert (done.status_code == 200) == offered, name
        if not offered:
            assert done.status_code == 403


@pytest.mark.parametrize("held", [each for n in range(3) for each in itertools.combinations(GRANTS[:3], n)])
def test_a_page_shows_what_its_viewer_may_read(shop, held):
    shop.be(*held)
    reads = {"read topic:orders", "read group:orders/*"} <= set(held)
    page = shop.get(QUEUE)
    assert ("no eggs" in page.text) == reads
    messages = shop.get("/console/topics/orders/messages")
    assert (messages.status_code == 200) == ("read topic:orders" in held)
    assert ("order 4" in messages.text) == ("read topic:orders" in held)
    assert (shop.get("/console/topics/orders/messages/0/4").status_code == 200) == ("read topic:orders" in held)


def test_a_viewer_without_rights_sees_nothing(shop):
    shop.be()
    for path in ("/", "/console/topics", "/console/groups", "/console/queues"):
        page = shop.page(path)
        assert not any(word in page for word in (">orders<", "kitchen", ">report<", "mem://"))
    for path in ("/console/topics/orders", QUEUE, GROUP, "/console/topics/orders/messages"):
        assert shop.get(path).status_code == 403
    assert shop.get("/console/topics/nope").status_code == 403  # whether it exists or not


def test_the_figures_of_the_broker_need_a_right(shop):
    shop.be("see topic:*")
    assert "Processes" not in shop.page("/")
    shop.be("see node")
    assert "Processes" in shop.page("/")


def test_pages_need_a_user_where_there_are_users(shop):
    shop.be_all()
    bare = shop.run(shop._client.get("/"))
    assert bare.status_code == 401
    assert bare.headers["www-authenticate"].startswith("Basic ")
    assert "<html" in bare.text
    assert shop.run(shop._client.get("/console/static/console.css")).status_code == 200
    assert ">ann</span>" in shop.page("/")
