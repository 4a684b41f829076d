"""What the demo says while it runs."""

from __future__ import annotations

import io

import pytest
from penstock.demo.display import Display
from rich.console import Console


@pytest.mark.parametrize(("quiet", "said"), [(False, "starting a broker\nlate flights: 1,234\n"), (True, "")])
def test_without_a_terminal_each_step_is_a_line_and_for_programs_nothing(quiet: bool, said: str) -> None:
    out = io.StringIO()
    with Display(Console(file=out), live=False, quiet=quiet) as display:
        display.say("starting a broker")
        display.phase("queue", "late flights", 1234, [])
        display.refresh()
    assert out.getvalue() == said
