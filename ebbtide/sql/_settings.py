"""The settings and the rights of a session: values that SET changes, and what its statements may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ebbtide.errors import SqlError
from ebbtide.redaction import MASK, is_credential


@dataclass(frozen=True)
class Rights:
    """The rights of a session's statements.

    Args:
        writes: They may create, change and delete tables that no pipeline owns.
        folders: They may name files and folders of the host or of a store.
        programs: They may call programs, Java classes and methods.
        stops_own_jobs_only: They stop no job of another client.
    """

    writes: bool = True
    folders: bool = True
    programs: bool = True
    stops_own_jobs_only: bool = False

    @classmethod
    def of_gateway(
        cls,
        *,
        writes: bool,
        folders: bool = False,
        stops_own_jobs_only: bool = False,
    ) -> Rights:
        """Return the rights of a gateway's client, which never include programs.

        Args:
            writes: False: statements that Spark executes for the client only read.
            folders: See the class.
            stops_own_jobs_only: See the class.
        """
        return cls(writes, folders, programs=False, stops_own_jobs_only=stops_own_jobs_only)


@dataclass(frozen=True)
class Setting:
    """A setting of ours.

    Args:
        default: Value at the start.
        allowed: Description of the allowed values, for errors.
        takes: Returns whether a value is allowed.
    """

    default: str
    allowed: str
    takes: Callable[[str], bool]

    @classmethod
    def number(cls, default: int, least: int) -> Setting:
        """Return a setting that takes whole numbers from `least` on."""
        allowed = f"a number from {least} on"
        return cls(
            str(default),
            allowed,
            lambda value: value.isdecimal() and int(value) >= least,
        )

    @classmethod
    def choice(cls, *choices: str) -> Setting:
        """Return a setting that takes one of some words; the first is the default."""
        return cls(choices[0], ", ".join(choices), lambda value: value in choices)


SPARK = "spark."
"""Prefix of Spark's own settings."""
CATALOG_SETTING = "spark.sql.catalog."
"""Prefix of the settings of Spark's catalogs: with a name alone the class, with more its options."""
FIXED_OF_SPARK = ("spark.sql.variable.substitute", "spark.sql.runSQLOnFiles")
"""Settings of Spark that follow from the rights of the session."""
GONE = {
    "dagster-url": "Jobs are processes. To run pipelines in Dagster let it load the same definitions, and switch on the "
    "sensor ebbtide_backlog or a schedule: docs/how-to/dagster.md."
}
"""Settings of earlier releases, each with the replacement."""
SETTINGS: Mapping[str, Setting] = {
    "max-rows": Setting.number(10_000, least=0),
    "max-age": Setting.number(86_400, least=0),
    "page-rows": Setting.number(1_000, least=1),
    "runtime-mode": Setting.choice("batch", "streaming"),
    "poll-interval": Setting.number(1, least=1),
}
"""The settings of a session other than `spark.*`: docs/reference/sql.md. Clients have further settings."""
OF_FLINK = {
    "sql-client.execution.max-table-result.rows": "max-rows",
    "execution.runtime-mode": "runtime-mode",
}
"""Names that settings of ours have in Flink's client; statements may use these too."""


def own_name(key: str) -> str:
    """Return the name of a setting here.

    Example:
        >>> own_name("execution.runtime-mode"), own_name("max-age")
        ('runtime-mode', 'max-age')
    """
    return OF_FLINK.get(key, key)


class Settings:
    """The values of some settings, and of Spark's where these are taken.

    Args:
        initial: Initial values; the other settings begin with their defaults.
        known: The settings by name.
        takes_spark: Whether any `spark.*` is a setting too.

    Raises:
        SqlError: an initial value is not allowed.
    """

    def __init__(
        self,
        initial: Mapping[str, str],
        known: Mapping[str, Setting] = SETTINGS,
        *,
        takes_spark: bool = True,
    ) -> None:
        self._known = known
        self._takes_spark = takes_spark
        self._initial = {name: setting.default for name, setting in known.items()}
        self._now = dict(self._initial)
        for key, value in initial.items():
            self.set(key, value)
        self._initial = dict(self._now)

    def __getitem__(self, key: str) -> str:
        """Return the value of a setting."""
        return self._now[key]

    def __contains__(self, key: object) -> bool:
        """Return whether a setting of this name has a value."""
        return key in self._now

    def set(self, key: str, value: str) -> None:
        """Change a setting.

        Raises:
            SqlError: there is none of that name, it is fixed, or it does not take the value.
        """
        key = own_name(key)
        self._refuse_unknown(key)
        if key in FIXED_OF_SPARK:
            allowed = "what the session's rights say: docs/reference/sql-gateway.md"
            raise SqlError.of(f"The setting '{key}' is fixed.", got=value, allowed=allowed)
        setting = self._known.get(key)
        if setting is not None and not setting.takes(value):
            raise SqlError.of(
                f"The setting '{key}' does not take this value.",
                got=value,
                allowed=setting.allowed,
            )
        self._now[key] = value

    def reset(self, key: str | None = None) -> None:
        """Set one, or all, back to the initial value.

        Raises:
            SqlError: there is none of that name.
        """
        if key is None:
            self._now = dict(self._initial)
            return
        key = own_name(key)
        self._refuse_unknown(key)
        self._now.pop(key, None)
        if key in self._initial:
            self._now[key] = self._initial[key]

    def shown(self) -> dict[str, str]:
        """Return all of them, sorted, credentials masked."""
        return {key: MASK if is_credential(key) else value for key, value in sorted(self._now.items())}

    def of_spark(self) -> dict[str, str]:
        """Return Spark's settings."""
        return {key: value for key, value in self._now.items() if key.startswith(SPARK)}

    def external_catalogs(self) -> dict[str, str]:
        """Return the classes of the catalogs of Spark in them, by name."""
        found = {}
        for key, value in self._now.items():
            name = key.removeprefix(CATALOG_SETTING)
            if name != key and "." not in name:
                found[name] = value
        return found

    def _refuse_unknown(self, key: str) -> None:
        is_of_spark = self._takes_spark and key.startswith(SPARK)
        if key in self._known or is_of_spark:
            return
        names = [*self._known, f"{SPARK}*"] if self._takes_spark else list(self._known)
        raise SqlError.of(
            "There is no such setting.",
            got=key,
            allowed=", ".join(names),
            next_step=GONE.get(key),
        )
