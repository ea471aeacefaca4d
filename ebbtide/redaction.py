"""Texts made fit to be shown: without credentials, and without characters that a terminal obeys or a reader does not see.

Errors, what commands print and what Dagster shows go through `shown`. What is hidden: values that were registered by
`hide`, such as settings that came from the environment; `user:password@` of a URI; the value of whatever is named like a
credential, `password=...`.
"""

from __future__ import annotations

import re

MASK = "***"
"""Stands for what is not shown."""
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A setting's value that stands for a variable of the environment."""
LEAST_LENGTH = 4
"""Characters of the shortest value that is hidden: shorter ones stand in ordinary words."""
_CREDENTIAL_NAME = r"(?:secret|passw(?:or)?d|token|access[-_.]?key|private[-_.]?key|credential|signature)"
_NAMED_LIKE_ONE = re.compile(_CREDENTIAL_NAME, re.IGNORECASE)
# Of bounded length, each of them: else a long text would take the square of its length.
_OF_URI = re.compile(r"(?<=://)[^\s/:@'\"]{0,255}:[^\s@'\"]{0,1000}(?=@)")
_NAMED_VALUE = re.compile(
    rf"""([\w.-]{{0,40}}{_CREDENTIAL_NAME}[\w.-]{{0,40}}['"]?\s*[=:]\s*)('[^']*'|"[^"]*"|[^\s'",;&}}]+)""",
    re.IGNORECASE,
)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of writing, line separators, lone surrogates."""
_hidden: set[str] = set()


def hide(value: str) -> None:
    """Show a value nowhere from now on.

    Args:
        value: A credential, for instance; shorter than `LEAST_LENGTH` it cannot be hidden.
    """
    if len(value) >= LEAST_LENGTH:
        _hidden.add(value)


def is_credential(name: str) -> bool:
    """Return whether a setting is named like one that holds a credential.

    Example:
        >>> is_credential("spark.hadoop.fs.s3a.secret.key"), is_credential("spark.driver.memory")
        (True, False)
    """
    return _NAMED_LIKE_ONE.search(name) is not None


def has_unseen(text: str) -> bool:
    """Return whether a text has control or invisible characters."""
    return _UNSEEN.search(text) is not None


def redacted(text: str) -> str:
    """Return a text without credentials.

    Example:
        >>> redacted("s3://key:secret@bucket/in, password=hunter2")
        's3://***@bucket/in, password=***'
    """
    # The longest first: one may be a part of another.
    for value in sorted(_hidden, key=len, reverse=True):
        text = text.replace(value, MASK)
    text = _OF_URI.sub(MASK, text)
    return _NAMED_VALUE.sub(rf"\g<1>{MASK}", text)


def printable(text: str) -> str:
    r"""Return a text with characters that are not seen escaped.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return _UNSEEN.sub(_escaped, text)


def shown(text: str) -> str:
    """Return a text as it may be shown: its lines stay lines."""
    lines = redacted(text).split("\n")
    return "\n".join(map(printable, lines))


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode()
