"""`penstock.errors` holds the whole tree."""

from __future__ import annotations

import importlib

import penstock.errors
import pytest
from penstock.storage.errors import Error


@pytest.mark.parametrize("floor", ["storage", "transport", "broker", "clients", "spark"])
def test_every_error_of_every_floor_can_be_caught_from_one_place(floor: str) -> None:
    home = importlib.import_module(f"penstock.{floor}.errors")
    kinds = [kind for kind in vars(home).values() if isinstance(kind, type) and issubclass(kind, Error)]
    assert kinds
    for kind in kinds:
        assert getattr(penstock.errors, kind.__name__) is kind
        assert kind.__name__ in penstock.errors.__all__
