"""The line editor of `penstock shell`: history in a file, and click's completion. Needs prompt_toolkit.

Contract: names are asked of the broker in a thread, when Tab is pressed, so typing is never slow.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from click.shell_completion import ShellComplete, split_arg_string
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from . import app


def is_time(words: Sequence[str]) -> bool:
    """Whether the words behind `watch` begin with a time."""
    return bool(words) and words[0][:1].isdigit()


def line_editor(prompt: str, history: Path) -> PromptSession[str]:
    """An editor that keeps its history in a file that only its owner can read. Raises OSError."""
    history.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(history, os.O_CREAT | os.O_RDWR, 0o600))
    return PromptSession(
        prompt,
        history=FileHistory(str(history)),
        completer=CommandCompleter(),
        complete_in_thread=True,
        complete_while_typing=False,
    )


class CommandCompleter(Completer):
    """What click would complete behind `penstock`."""

    def __init__(self) -> None:
        self._click = ShellComplete(app.penstock, {}, "penstock", app.COMPLETION)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """See Completer."""
        text = document.text_before_cursor
        typed = text.split(" ")[-1]
        words = split_arg_string(text[: len(text) - len(typed)])
        if words[:1] == ["watch"]:
            words = words[2:] if is_time(words[1:]) else words[1:]
        elif words[:1] == ["help"]:
            words = words[1:]
        offers = [each for each in self._click.get_completions(words, typed) if each.type == "plain"]
        behind = " " if len(offers) == 1 else ""
        for offer in offers:
            yield Completion(f"{shlex.quote(offer.value)}{behind}", -len(typed), offer.value, offer.help or "")
