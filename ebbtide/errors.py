"""Every error that Ebbtide raises, one class per situation.

A message says what happened, the value got, the values allowed, and the next step. `Terminal` errors come back
on every retry until a user acts; `Transient` ones may pass by themselves. An orchestrator decides by that mixin
whether to retry.
"""

from __future__ import annotations

import re
from typing import ClassVar, Self

from ebbtide.redaction import printable, shown


class EbbtideError(Exception):
    """Base of all Ebbtide errors.

    Args:
        message: What happened, the value got, the values allowed, the next step; credentials in it are masked.
    """

    exit_code: ClassVar[int] = 1
    """Exit code of a command that ends by it; a service manager uses it to decide on a restart."""

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))

    @classmethod
    def of(
        cls,
        what: str,
        *,
        got: object = None,
        allowed: object = None,
        next_step: str | None = None,
    ) -> Self:
        """Compose the message in the one order that all errors share.

        Example:
            >>> print(ConfigError.of("The ttl is not positive.", got="-1s", allowed="a duration above 0"))
            The ttl is not positive. Got: -1s. Allowed: a duration above 0.
        """
        parts = [printable(what)]
        if got is not None:
            text = printable(str(got))
            parts.append(f"Got: {text}.")
        if allowed is not None:
            text = printable(str(allowed))
            parts.append(f"Allowed: {text}.")
        if next_step:
            parts.append(next_step)
        message = " ".join(parts)
        return cls(message)

    @classmethod
    def within(cls, error: BaseException) -> EbbtideError | None:
        """Find the error of ours that a worker raised in what Spark made of it; None if there is none."""
        for found in re.finditer(r"^(?:ebbtide\.errors\.)(\w+): (.+)$", str(error), re.MULTILINE):
            named = cls.named(found[1], found[2])
            if named is not None:
                return named
        return None

    @classmethod
    def named(cls, kind: str, message: str) -> EbbtideError | None:
        """Make the error of ours that has a name; None if there is none of it.

        Args:
            kind: Name of its class.
            message: As it was raised elsewhere.

        Example:
            >>> EbbtideError.named("SqlError", "There is no table 'a'.")
            SqlError("There is no table 'a'.")
        """
        found = globals().get(kind)
        if isinstance(found, type) and issubclass(found, EbbtideError):
            return found(message)
        return None


class Terminal(EbbtideError):  # noqa: N818 - what it is, not an error by itself
    """Retrying cannot help: a person must change something first."""

    exit_code: ClassVar[int] = 5


class Transient(EbbtideError):  # noqa: N818
    """Retrying later may help."""


class ConfigError(Terminal):
    """Raised when a pipeline spec or a command's argument is not usable."""

    exit_code: ClassVar[int] = 2


class SqlError(Terminal):
    """Raised when a SQL statement cannot be done: what it names is not there, or not to be had that way."""


class SqlSyntaxError(SqlError):
    """Raised when a SQL statement cannot be read."""


class OperationCanceledError(SqlError):
    """Raised when the result of a statement is asked for that was cancelled."""


class GatewayError(Terminal):
    """Raised when a SQL gateway refuses a request: its token, its form or size, a statement that it does not take."""


class GatewayBusyError(Transient):
    """Raised when a SQL gateway has no place for one more session or operation."""


class GatewayGoneError(Transient):
    """Raised when a SQL gateway does not answer, or is ending."""


class SessionGoneError(SqlError):
    """Raised when a session of a SQL gateway is over: it was closed, it was idle for too long, or the gateway was restarted."""


class OperationGoneError(SqlError):
    """Raised when an operation of a SQL gateway is asked for that was closed."""


class MissingExtraError(Terminal):
    """Raised when a part of Ebbtide is used whose libraries are not installed."""

    @classmethod
    def of_extra(cls, extra: str, library: str) -> Self:
        """Say which extra brings a library.

        Args:
            extra: Name of the extra.
            library: The library that is missing.
        """
        return cls.of(f"{library} is not installed.", next_step=f"Install it: pip install 'ebbtide[{extra}]'.")

    @classmethod
    def in_place_of(cls, missing: ModuleNotFoundError) -> Exception:
        """Return the error to raise for a module that is not there: one that names the extra if it is of Spark, else the same.

        Much of Ebbtide works without Spark, so its modules are loaded where they are needed.
        """
        library, _, _ = str(missing.name).partition(".")
        return cls.of_extra("spark", "PySpark") if library in ("pyspark", "py4j", "delta") else missing


class JavaMissingError(Terminal):
    """Raised when there is no Java for Spark to run on, or one that is too old."""


class SpecChangedError(Terminal):
    """Raised when a spec no longer fits the state that was stored under it."""


class MigrationError(Terminal):
    """Raised when stored state cannot be migrated as asked; nothing was changed."""


class RepairError(Terminal):
    """Raised when a sink cannot be repaired from its state; nothing was changed."""


class AdoptionError(Terminal):
    """Raised when a table cannot become a pipeline's sink; nothing was changed."""


class BackfillError(Terminal):
    """Raised when a backfill cannot be built, resumed or swapped in as requested; nothing was changed."""


class HistoryGoneError(Terminal):
    """Raised when an earlier version cannot be gone back to: its files or commits are deleted; nothing was changed."""


class StoredFormatError(Terminal):
    """Raised when a stored table was written in a format that this version does not read."""


class TableMismatchError(Terminal):
    """Raised when a pipeline's tables do not fit: one was deleted, replaced, restored or changed by another client."""


class FilesMovedError(Transient):
    """Raised when another client removed a data file that was being replaced; nothing was changed."""


class LateFileError(Terminal):
    """Raised, by order of arrival, when a file appears under a name that sorts below one already read from its folder."""


class FileChangedError(Terminal):
    """Raised when a source file has not the size that it was listed or read with: appended to, rewritten, still written; or was moved below its folder."""


class SourceReadError(Terminal):
    """Raised when a source file cannot be read: truncated, not gzip, gone."""


class SourceLostError(Terminal):
    """Raised when the next records to read no longer exist: they were deleted, or the source was replaced."""


class SourceLogError(Terminal):
    """Raised when records are of another log of the source than those before: their positions do not continue it. Nothing of the step was committed."""


class SourceUnavailableError(Transient):
    """Raised when a source does not answer in time; nothing of the step was committed."""


class QuarantineThresholdError(Terminal):
    """Raised when a step holds more bad records than the spec allows, before anything is committed."""


class SchemaDriftError(Terminal):
    """Raised when records do not fit the schema and the spec says fail, before anything of the step is committed."""


class StatefulFunctionError(Terminal):
    """Raised when a user's stateful function fails, or yields what does not fit its output; nothing is committed."""


class PausedError(Terminal):
    """Raised when a pipeline that is paused is to read its source."""

    exit_code: ClassVar[int] = 4


class LeaseHeldError(Transient):
    """Raised when another run holds the pipeline's lease."""


class LeaseAskedError(Transient):
    """Raised when a continuous run yields the lease to a process that requested it; it continues by itself."""


class LeaseLostError(Transient):
    """Raised when another run has taken the lease over; the loser stops before its next commit."""


class DeltaLogError(Terminal):
    """Raised when the log of a Delta table, or a deletion vector, cannot be read."""


class DamagedFileError(Terminal):
    """Raised when a file written by Ebbtide is incomplete, has other bytes than were written, or is gone; nothing of it was used."""


class UnsupportedFileError(Terminal):
    """Raised when a file of a table has a form that Ebbtide should read and cannot: a fault of Ebbtide, and no damage of the file."""


class DeltaFeatureError(Terminal):
    """Raised when a Delta table uses a feature that Ebbtide does not read or write by itself."""


class DiskError(Transient, OSError):
    """Raised when a local disk fails to write or read; nothing is left half done."""


class DiskFullError(DiskError):
    """Raised when a local disk, or the user's share of it, is full; nothing is half done."""


class VersionTakenError(Transient):
    """Raised when another client committed the version of a Delta table that was to be committed."""


class StoreUnavailableError(Transient):
    """Raised when an object store failed for as long as a call is tried again: it was slow, or not there; nothing is half done."""


class StoreRefusedError(Terminal):
    """Raised when a folder refuses this user's writes; or an object store a call: of its rights, or because bucket, region or endpoint is another."""


class StoreUnsafeError(Terminal):
    """Raised when an object store ignores put-if-absent and overwrites; nothing was written to a table."""


class ViewQueryError(Terminal):
    """Raised when the query of a materialized view cannot be used or evaluated; nothing of the step was committed."""


class ViewKeyError(Terminal):
    """Raised when the query of a materialized view gives several rows for one key; nothing of the step was committed."""
