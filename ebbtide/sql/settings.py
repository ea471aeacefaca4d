"""A session's settings: ours by name, Spark's as `spark.*`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ebbtide.errors import SqlError
from ebbtide.redaction import MASK, is_credential


@dataclass(frozen=True)
class Setting:
    """A setting of ours.

    Args:
        default: Its value at first.
        allowed: What values it takes, in words.
        takes: Whether it takes one.
    """

    default: str
    allowed: str
    takes: Callable[[str], bool]


def _number_from(least: int) -> Callable[[str], bool]:
    return lambda value: value.isdecimal() and int(value) >= least


SPARK = "spark."
FIXED_OF_SPARK = ("spark.sql.variable.substitute", "spark.sql.runSQLOnFiles")
"""Settings of Spark that are what a session's rights say."""
GONE = {
    "dagster-url": "Jobs are processes. To run pipelines in Dagster let it load the same definitions, and switch on the "
    "sensor NAME_backlog or a schedule: docs/dagster.md."
}
"""Settings of earlier releases, and what to do instead."""

SETTINGS: Mapping[str, Setting] = {
    "max-rows": Setting("10000", "a number from 0 on", _number_from(0)),
    "page-rows": Setting("1000", "a number from 1 on", _number_from(1)),
    "runtime-mode": Setting("batch", "batch, streaming", lambda value: value in ("batch", "streaming")),
    "poll-interval": Setting("1", "a number from 1 on", _number_from(1)),
}
"""The settings that a session has, beside `spark.*`: docs/sql.md. Clients have further ones of their own."""


class Settings:
    """The settings of one session.

    Args:
        initial: What it begins with, beside the defaults.
    """

    def __init__(self, initial: Mapping[str, str]) -> None:
        self._initial = {name: setting.default for name, setting in SETTINGS.items()}
        for key, value in initial.items():
            refuse_unfit(key, value)
            self._initial[key] = value
        self._now = dict(self._initial)

    def __getitem__(self, key: str) -> str:
        """Return the value of one of ours."""
        return self._now[key]

    def set(self, key: str, value: str) -> None:
        """Set one.

        Raises:
            SqlError: there is none of that name, or it does not take the value.
        """
        refuse_unfit(key, value)
        self._now[key] = value

    def reset(self, key: str | None) -> None:
        """Bring one, or all, back to what the session began with.

        Raises:
            SqlError: there is none of that name.
        """
        if key is None:
            self._now = dict(self._initial)
            return
        _refuse_unknown(key)
        self._now.pop(key, None)
        if key in self._initial:
            self._now[key] = self._initial[key]

    def shown(self) -> dict[str, str]:
        """Return all of them, sorted, credentials masked."""
        return {key: MASK if is_credential(key) else value for key, value in sorted(self._now.items())}

    def of_spark(self) -> dict[str, str]:
        """Return those of Spark."""
        return {key: value for key, value in self._now.items() if key.startswith(SPARK)}


def refuse_unfit(key: str, value: str) -> None:
    """Refuse a setting that there is not, or a value that it does not take.

    Raises:
        SqlError: either, or it is fixed.
    """
    _refuse_unknown(key)
    if key in FIXED_OF_SPARK:
        allowed = "what the session's rights say: docs/sql-gateway.md"
        raise SqlError.of(f"The setting '{key}' is fixed.", got=value, allowed=allowed)
    setting = SETTINGS.get(key)
    if setting is not None and not setting.takes(value):
        raise SqlError.of(f"The setting '{key}' does not take this value.", got=value, allowed=setting.allowed)


def _refuse_unknown(key: str) -> None:
    if key not in SETTINGS and not key.startswith(SPARK):
        known = ", ".join(SETTINGS)
        raise SqlError.of(
            "There is no such setting.",
            got=key,
            allowed=f"{known}, {SPARK}*",
            next_step=GONE.get(key),
        )
