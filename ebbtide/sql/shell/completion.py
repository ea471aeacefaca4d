"""What a word may become, as the session knows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ebbtide.errors import EbbtideError
from ebbtide.sql.shell.background import BackgroundSession
from ebbtide.sql.shell.formats import ResultFormat
from ebbtide.sql.shell.settings import RESULT_FORMAT, TIMING

OPENING_S = 5.0
"""How long a completion waits for a session that is still being opened; it does so on a thread of its own."""


_KEY = re.compile(r"\s*(?:SET|RESET)\s+([\w-]*)", re.IGNORECASE)
_VALUE = re.compile(r"\s*SET\s+(result-format|timing)\s*=\s*(\w*)", re.IGNORECASE)
_VALUES = {RESULT_FORMAT: [form.value for form in ResultFormat], TIMING: ["on", "off"]}


class SessionCompleter(Completer):
    """Asks the session.

    Args:
        background: It.
    """

    def __init__(self, background: BackgroundSession) -> None:
        self._background = background

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield them; none, where the session cannot be had."""
        text = document.text
        offset = document.cursor_position
        yield from _own(document.text_before_cursor)
        try:
            session = self._background.get(OPENING_S)
            found = [] if session is None else session.complete(text, offset)
        except EbbtideError:  # the next statement says why
            return
        for completion in found:
            yield Completion(
                completion.text,
                start_position=completion.start - offset,
                display_meta=completion.kind.value,
            )


def _own(text: str) -> Iterator[Completion]:
    """Yield the client's settings and their values where SET asks for them."""
    choices: list[str]
    key, value = _KEY.fullmatch(text), _VALUE.fullmatch(text)
    if key is not None:
        typed, choices = key[1], list(_VALUES)
    elif value is not None:
        typed, choices = value[2], _VALUES[value[1].lower()]
    else:
        return
    for choice in choices:
        if choice.startswith(typed.lower()):
            yield Completion(
                choice,
                start_position=-len(typed),
                display_meta="setting of the client",
            )
