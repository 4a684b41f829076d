"""Dashboards and alerts: every metric that they name is one of the exporter's, and promtool accepts the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime

import pytest
from penstock.clients.descriptions import Group, Topic
from penstock.clients.queues.descriptions import Queue
from penstock.metrics import CLUSTERED, COUNTED, Look, Usage, metrics
from support.sources import ROOT

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
BOARD = DEPLOY / "grafana" / "penstock.json"


def exported() -> dict[str, str]:
    """Kinds of all metrics, by name."""
    stats = {
        each.counter: {"x": 1} if each.label else [0] if each.kind == "histogram" else 1
        for each in (*COUNTED, *CLUSTERED)
    }
    look = Look(
        now=datetime.now(UTC), took_s=0.1, stats=stats, topics=[Topic("t", "", {}, [])],
        groups=[Group("t", "g", [], [])], queues=[Queue("t", "q", {}, [])], usage={"broker": Usage(1, 1, 1, 1, 1)},
        disk_free_bytes=1, refused={"credentials": 1},
    )  # fmt: skip
    return {each.name: each.kind for each in metrics(look, most=1, partitions=True)}


def named(text: str) -> set[str]:
    return set(re.findall(r"\bpenstock_\w+", text))


@pytest.mark.parametrize("path", [RULES, DEPLOY / "prometheus" / "alerts_test.yml", BOARD], ids=lambda path: path.name)
def test_every_metric_that_is_named_is_exported(path):
    kinds = exported()
    names = named(path.read_text())
    buckets = {name for name in names if name.endswith("_bucket")}
    assert len(names) > 3
    assert names - buckets - set(kinds) == set()
    assert {kinds.get(name.removesuffix("_bucket")) for name in buckets} <= {"histogram"}


def test_every_rate_is_of_a_counter():
    kinds = exported()
    for path in (RULES, BOARD):
        rated = re.findall(r"\brate\((penstock_\w+)", path.read_text())
        assert rated
        assert {kinds[name.removesuffix("_bucket")] for name in rated} <= {"counter", "histogram"}


def test_the_panels_of_the_dashboard_lie_beside_each_other():
    panels = json.loads(BOARD.read_text())["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = [[each["gridPos"][name] for name in "xywh"] for each in panels]
    taken = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]
    assert len(set(taken)) == len(taken)
    assert all(x < 24 for x, _ in taken)


def test_the_page_names_every_alert():
    page = (ROOT / "docs" / "seeing.md").read_text()
    alerts = re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
    assert len(alerts) == 14
    assert [name for name in alerts if f"`{name}`" not in page] == []


def test_every_metric_to_look_into_has_an_alert():
    page = (ROOT / "docs" / "seeing.md").read_text()
    (row,) = re.findall(r"^\| (.*) \| look into it when one is above 0 \|$", page, re.MULTILINE)
    assert [name for name in re.findall(r"`(\w+)`", row) if f"{name} > 0" not in RULES.read_text()] == []


@pytest.mark.parametrize("words", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_promtool_accepts_the_rules(words):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool comes with Prometheus, which is not installed")
    checked = subprocess.run([promtool, *words], cwd=RULES.parent, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
