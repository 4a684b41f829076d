"""What the first page says to look at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.checkup import of_stats
from penstock.gateway.console.overview import _of_node
from penstock.metrics import COUNTED


def test_what_is_bad_to_the_doctor_is_worth_a_look():
    bad = [each.counter for each in COUNTED if any(found.state == "bad" for found in of_stats({each.counter: 1}))]
    assert len(bad) > 5
    for counter in bad:
        sample: Any = SimpleNamespace(stats={counter: 1234})
        (hint,) = _of_node(sample)
        assert (hint.level in ("bad", "warning"), "1,234" in hint.text) == (True, True), counter
