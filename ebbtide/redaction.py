"""Texts made fit to be shown: without credentials, and without characters that a terminal obeys or a reader does not see.

Errors, what commands print and what Dagster shows go through `shown`. What is hidden: values that were registered by
`hide`, such as settings that came from the environment; `user:password@` of a URI; what follows `Bearer`; the value of anything
named like a credential, `password=...`.
"""

from __future__ import annotations

import re

MASK = "***"
"""Replaces hidden values."""
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A setting's value that refers to a variable of the environment."""
LEAST_LENGTH = 4
"""Characters of the shortest value that is hidden: shorter ones occur in ordinary words."""
_WORDS = (
    "secret",
    "passw(?:or)?d",
    "passphrase",
    "token",
    "credential",
    "signature",
    "authorization",
    "(?:access|account|api|master|private|shared|subscription)[-_. ]?key",
)
"""Parts of the names of credentials, anywhere in them."""
_SHORT_WORDS = ("auth", "pass", "pwd", "sas", "sig")
"""The same, but as words: `sas-token` and `x_sig`, not `sasl.mechanism` and `design`."""
_CREDENTIAL_NAME = rf"(?:{'|'.join(_WORDS)}|(?<![A-Za-z0-9])(?:{'|'.join(_SHORT_WORDS)})(?![A-Za-z0-9]))"
_NAMED_LIKE_ONE = re.compile(_CREDENTIAL_NAME, re.IGNORECASE)
# Each part of a pattern is of bounded length, or begins where another one ends: a long text takes linear time.
_WORD = re.compile(r"[^\s'\"]+")
_USER = re.compile(r"://(?=[^/:@]{0,255}:)")
_QUOTE = r"""\\{0,7}['"]"""
"""A quote, escaped in JSON within a JSON text."""
_SEPARATOR = rf"(?:(?:{_QUOTE})?\s{{0,20}}(?:=>?|:|%3[AaDd])\s{{0,20}}|{_QUOTE}\s{{0,20}},\s{{0,20}}(?=[bur]?{_QUOTE}))"
"""Between a name and its value: of a setting, a mapping, a header, a query, or two texts of a pair."""
_QUOTED = rf"[bur]?(?P<quote>{_QUOTE})(?:.*?(?<!\\)(?P=quote)(?:(?P=quote).*?(?P=quote))*|.*)"
"""A text, up to its closing quote if it has one; a doubled or an escaped one does not close it."""
_SCHEME = r"(?:(?:Basic|Bearer|Digest|Negotiate|Token)\s{1,20})?"
"""Kind of a credential in a header, which stands before it."""
_NAMED_VALUE = re.compile(
    rf"({_CREDENTIAL_NAME}[\w.-]{{0,40}}{_SEPARATOR})(?:{_QUOTED}|{_SCHEME}[^\s'\",;&}}]+)",
    re.IGNORECASE | re.DOTALL,
)
_OF_HEADER = re.compile(r"\b(Bearer\s{1,20})[^\s'\",;]+", re.IGNORECASE)
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
    text = _WORD.sub(_without_user, text)
    text = _OF_HEADER.sub(rf"\g<1>{MASK}", text)
    return _NAMED_VALUE.sub(rf"\g<1>{MASK}", text)


def _without_user(word: re.Match[str]) -> str:
    """Return a word without `user:password` of its URI: up to the last @, as a password may have one."""
    text = word[0]
    end = text.rfind("@")
    user = _USER.search(text, 0, end) if end >= 0 else None
    return text if user is None else f"{text[: user.end()]}{MASK}{text[end:]}"


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
