"""The console in Chromium, over a broker and a gateway in processes of their own: what a person does there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import penstock
import pytest
from penstock.broker import ServeConfig, access_file
from support.processes import Serving
from support.sources import ROOT

from ..conftest import NEEDS, GatewayProcess

playwright = pytest.importorskip("playwright.sync_api", reason=NEEDS)

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SLOW_MS = 30_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium, or name it in CHROMIUM")


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[str]:
    """The URL of a broker with a topic, a group, and a queue with two dead letters."""
    folder = tmp_path_factory.mktemp("console")
    with Serving(ServeConfig(data=str(folder / "data"), listen=(f"unix://{folder}/b",))) as serving:
        with penstock.connect(serving.url) as client:
            fill(client)
        yield serving.url


def fill(client: Any) -> None:
    client.create_topic("orders")
    with client.producer("orders") as producer:
        for number in range(60):
            producer.send(b'{"number":%d}' % number, key=b"k%d" % (number % 3))
        producer.send(b"<img src=x onerror=alert(1)><script>alert(2)</script>", key=b"<b>bold</b>")
    client.commit_group("orders", "report", {0: 10})
    client.set_queue("orders", "kitchen", max_attempts=1)
    with client.worker("orders", group="kitchen", name="<i>cook</i>") as worker:
        tasks = worker.fetch(max_records=3)
        worker.reject(tasks[:2], reason="<u>no eggs</u>")
        worker.release(tasks[2:])


@pytest.fixture(scope="module")
def url(served: str) -> Iterator[str]:
    gateway = GatewayProcess(served, http=("tcp://127.0.0.1:0",))
    try:
        yield gateway.http_url
    finally:
        assert gateway.stop() == 0


@pytest.fixture
def client(served: str) -> Iterator[penstock.Client]:
    with penstock.connect(served) as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, url) -> Iterator[Any]:
    """A page at the gateway. It fails the test for an error of a script, and for a request to elsewhere."""
    context = chromium.new_context(base_url=url)
    context.set_default_timeout(SLOW_MS)
    found, wrong = context.new_page(), []
    found.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    found.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    found.on("request", lambda asked: None if asked.url.startswith((url, "data:")) else wrong.append(asked.url))
    found.on("dialog", lambda dialog: (wrong.append(f"alert: {dialog.message}"), dialog.dismiss()))
    yield found
    context.close()
    assert wrong == []


def renewed(page: Any) -> None:
    """Wait until the page has been renewed once more."""
    page.evaluate("new Promise(done => document.addEventListener('htmx:after:swap', done, { once: true }))")


def test_a_person_finds_a_message_from_the_overview(page):
    page.goto("/")
    page.get_by_role("link", name="orders", exact=True).first.click()
    page.get_by_role("button", name="Browse messages").click()
    page.get_by_label("Key", exact=True).fill("k1")
    page.get_by_label("Key", exact=True).press("Enter")
    page.get_by_role("link", name="58").click()
    assert page.locator(".payload code").first.inner_text() == '{\n  "number": 58\n}'
    page.get_by_label("Show as").select_option("hex")
    page.get_by_role("button", name="Show").click()
    assert page.locator(".payload code").first.inner_text().startswith("00000000  7b 22")


def test_markup_in_messages_is_text(page):
    for path in ("/console/topics/orders/messages", "/console/topics/orders/messages/0/60"):
        page.goto(path)
        assert "<img src=x onerror=alert(1)>" in page.locator("main").inner_text()
        assert page.locator("main img, main script, main b").count() == 0
    page.goto("/console/queues/orders/kitchen")
    renewed(page)
    assert "<i>cook</i>" in page.locator("main").inner_text()


def test_figures_are_renewed_and_focus_stays(page, client):
    page.goto("/console/topics")
    link = page.get_by_role("link", name="orders", exact=True)
    link.focus()
    before = page.locator("#topic-orders td.n").nth(2).inner_text()
    with client.producer("orders") as producer:
        producer.send(b"one more")
    page.wait_for_function("text => document.querySelectorAll('#topic-orders td.n')[2].innerText !== text", arg=before)
    assert page.evaluate("document.activeElement.textContent") == "orders"


def test_an_open_detail_stays_open(page):
    page.goto("/console/queues/orders/kitchen")
    reason = page.locator("details").first
    reason.locator("summary").click()
    renewed(page)
    assert reason.get_attribute("open") is not None


def test_a_queue_is_paused_and_resumed(page, client):
    page.goto("/console/queues/orders/kitchen")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Cancel").click()
    assert client.queue("orders", "kitchen").paused_until is None
    page.get_by_role("button", name="Pause…").click()
    page.get_by_label("For how long").select_option("600")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_text("Paused for 10 min.").wait_for()
    assert client.queue("orders", "kitchen").paused_until is not None
    assert page.url.endswith("/console/queues/orders/kitchen")  # loading again does not pause again
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_text("Resumed.").wait_for()
    assert client.queue("orders", "kitchen").paused_until is None


def test_a_dead_letter_is_redriven(page, client):
    page.goto("/console/queues/orders/kitchen")
    page.get_by_role("button", name="Redrive orders-0-1").click()
    assert page.get_by_label("Only the task").input_value() == "orders-0-1"
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    page.get_by_text("Redrove 1 task, from attempt 1.").wait_for()
    assert client.queue("orders", "kitchen").dead_lettered == 1


def test_a_group_is_moved(page, client):
    page.goto("/console/groups/orders/report")
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("The first message", exact=True).check()
    page.get_by_role("button", name="Move", exact=True).click()
    page.get_by_text("Moved to the first message.").wait_for()
    assert client.committed("orders", "report")[0].offset == 0


def test_keys_lead_everywhere(page):
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url(re.compile("/console/queues$"))
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "find"
    page.keyboard.press("Tab")
    page.keyboard.press("p")
    assert page.locator("#updates").inner_text() == "Paused"
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_times_are_local(chromium, url):
    context = chromium.new_context(base_url=url, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto("/console/topics/orders/messages/0/0")
    time = page.locator("main time").first
    shown, utc = time.inner_text(), time.get_attribute("datetime")
    assert shown == page.evaluate(
        "iso => new Date(new Date(iso).getTime() + 5.5 * 3600e3).toISOString().slice(0, 19).replace('T', ' ')", utc
    )
    assert time.get_attribute("title") == utc
    context.close()


VIEWS = {
    "overview": "/",
    "topics": "/console/topics",
    "topic": "/console/topics/orders",
    "messages": "/console/topics/orders/messages",
    "message": "/console/topics/orders/messages/0/3",
    "groups": "/console/groups",
    "group": "/console/groups/orders/report",
    "queues": "/console/queues",
    "queue": "/console/queues/orders/kitchen",
    "nothing": "/console/topics/none",
}
PICTURES = ROOT / "build" / "console"
"""What each view looked like last, for people to look at."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_page_fits_and_its_text_has_contrast(chromium, url, scheme, width):
    context = chromium.new_context(base_url=url, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    for name, path in VIEWS.items():
        page.goto(path)
        page.screenshot(path=PICTURES / f"{name}-{scheme}-{width}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.evaluate(CONTRAST) == [], path
    context.close()


@pytest.mark.parametrize("width", [1000, 1180, 1280, 1440, 1920])
def test_no_table_of_the_overview_is_cut(chromium, url, client, width):
    client.create_topic("customer-notifications-by-mail", if_missing=True)
    client.commit_group("customer-notifications-by-mail", "reporting-nightly", {0: 0})
    client.set_queue("customer-notifications-by-mail", "kitchen-and-deliveries")
    context = chromium.new_context(base_url=url, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto("/")
    page.get_by_role("link", name="kitchen-and-deliveries").first.wait_for(timeout=SLOW_MS)
    assert page.evaluate(CUT) == []
    context.close()


CUT = """[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => each.getAttribute('aria-labelledby'))"""


CONTRAST = """() => {
  const numbers = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      const found = numbers(colour);
      if (colour.startsWith("rgb") && (found.length === 3 || found[3] === 1)) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !each.checkVisibility() || each.closest(".hidden, .skip, dialog")) continue;
    const [one, other] = [light(numbers(getComputedStyle(each).color)), light(behind(each))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) poor.push(`${each.tagName} ${each.className}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""


def test_a_foreign_page_can_do_nothing(page, url, client, chromium):
    """A form that another site sends, with all that a browser adds."""
    context = chromium.new_context()
    other = context.new_page()
    other.route("http://page.example/", lambda route: route.fulfill(content_type="text/html", body=FORGED % url))
    before = client.queue("orders", "kitchen")
    other.goto("http://page.example/")
    with other.expect_response(re.compile("/pause$")) as answered:
        other.get_by_role("button").click()
    assert answered.value.status == 403
    assert client.queue("orders", "kitchen").paused_until == before.paused_until
    other.goto("http://page.example/")
    assert other.evaluate("url => fetch(url).then(() => 'read', () => 'refused')", url) == "refused"
    context.close()


FORGED = (
    '<form method=post action="%s/console/queues/orders/kitchen/pause"><input name=csrf value=x><button>Win</button>'
)


def test_the_browser_asks_for_a_password(served, chromium, tmp_path):
    path = str(tmp_path / "users")
    access_file.add_password(path, "ann", "s3cret word")
    gateway = GatewayProcess(served, http=("tcp://127.0.0.1:0",), options=("--users", path))
    try:
        stranger = chromium.new_context(base_url=gateway.http_url).new_page()
        assert stranger.request.get("/").status == 401
        context = chromium.new_context(
            base_url=gateway.http_url, http_credentials={"username": "ann", "password": "s3cret word"}
        )
        page = context.new_page()
        page.goto("/console/queues/orders/kitchen")
        assert page.locator(".who").inner_text() == "ann"
        renewed(page)
        page.get_by_role("button", name="Pause…").wait_for()
    finally:
        assert gateway.stop() == 0


def test_a_gateway_that_is_gone_is_said(served, chromium):
    gateway = GatewayProcess(served, http=("tcp://127.0.0.1:0",))
    page = chromium.new_context(base_url=gateway.http_url).new_page()
    page.goto("/")
    assert gateway.stop() == 0
    page.get_by_text("The gateway does not answer.").wait_for(timeout=SLOW_MS)
