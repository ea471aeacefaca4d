"""All operations there are: the built-in ones, and those that installed packages name. Importing this loads no Spark.

A package adds an operation by an entry point whose name is the operation's:

```toml
[project.entry-points."ebbtide.operations"]
audit = "my_project.audit:Audit"
```
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from ebbtide.errors import ConfigError
from ebbtide.operations import operations as ours
from ebbtide.operations.backfill import operations as backfill_operations
from ebbtide.operations.erase import operations as erase_operations
from ebbtide.operations.maintenance import jobs
from ebbtide.operations.operation import Context, Operation, Report
from ebbtide.operations.quarantine import operations as quarantine_operations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.spec.pipeline import Pipeline

GROUP = "ebbtide.operations"
BUILT_IN: tuple[Operation, ...] = (
    backfill_operations.Drop(),
    backfill_operations.Into(),
    backfill_operations.Start(),
    backfill_operations.Status(),
    backfill_operations.Swap(),
    erase_operations.Erase(),
    jobs.Cleanup(),
    jobs.Compact(),
    jobs.Vacuum(),
    ours.Acknowledge(),
    ours.Adopt(),
    ours.Clock(),
    ours.Migrate(),
    ours.Pause(),
    ours.Repair(),
    ours.Resume(),
    ours.Rewind(),
    quarantine_operations.Drop(),
    quarantine_operations.Replay(),
)
TAKEN = frozenset({"action", "as_json", "root", "specs"})
"""Names that no field of `Params` can have: every command or job has them."""
TAKEN_NAMES = frozenset(
    {"check", "lag", "new", "refresh", "replay", "run", "sql", "sql-gateway", "state", "status", "stream"}
)
"""Names that no operation can have: of the other commands, and of the jobs that run a pipeline and check it."""


def operations(first: str | None = None) -> tuple[Operation, ...]:
    """Return all operations, by name.

    Args:
        first: Only those whose command begins with this word; other packages' are not loaded then. Default: all.

    Raises:
        ConfigError: a package's operation cannot be loaded, or has a name that is taken.
    """
    found = {operation.name: operation for operation in BUILT_IN if first in (None, first_word(operation.name))}
    for point in _entry_points():
        if first not in (None, first_word(point.name)):
            continue
        group = first_word(point.name)
        is_hidden = group in found or point.name in map(first_word, found)  # a command is not a group of commands
        if is_hidden or point.name in found or group in TAKEN_NAMES:
            raise ConfigError.of(
                f"Two operations or commands have the name '{point.name}'.",
                got=point.value,
                next_step=f"Rename one in its entry point '{GROUP}', or uninstall its package.",
            )
        found[point.name] = _loaded(point)
    return tuple(found[name] for name in sorted(found))


def first_words() -> set[str]:
    """Return the words that commands of operations begin with; loads no other package."""
    own = [operation.name for operation in BUILT_IN]
    added = [point.name for point in _entry_points()]
    return {first_word(name) for name in (*own, *added)}


def first_word(name: str) -> str:
    """Return the command that an operation is, or that it is below.

    Example:
        >>> first_word("backfill.swap"), first_word("rewind")
        ('backfill', 'rewind')
    """
    return name.partition(".")[0]


def maintain(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    job: str,
) -> Report:
    """Run one maintenance job on a pipeline's tables.

    Args:
        spark: A session with Delta.
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        job: Name of the job: cleanup, compaction, vacuum, or that of an installed package.

    Raises:
        ConfigError: there is no maintenance job of this name.
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    by_job = {each.job_name: each for each in operations() if isinstance(each, jobs.Maintenance)}
    if job not in by_job:
        raise ConfigError.of("There is no maintenance job of this name.", got=job, allowed=", ".join(by_job))
    work = by_job[job]
    return work.apply(Context(spec, root, lambda: spark), work.Params())


def _entry_points() -> Sequence[EntryPoint]:
    """Return the entry points of the operations of installed packages."""
    return _entry_points_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _entry_points_on(path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """Look through the packages on a path, once: it takes 15 ms, and `ebbtide --help` asks for each command.

    Args:
        path: `sys.path`, which importlib searches.
    """
    by_value = {}
    for point in entry_points(group=GROUP):
        by_value[point.name, point.value] = point  # a package may be on the path twice, as installed and in development
    return list(by_value.values())


def _loaded(point: EntryPoint) -> Operation:
    """Load an operation of a package; refuse what is not one."""
    where = f"{point.name} = {point.value}"
    try:
        kind = point.load()
    except Exception as error:
        raise ConfigError.of(
            f"An operation of an installed package cannot be loaded: {type(error).__name__}: {error}.",
            got=where,
            next_step=f"Correct the entry point '{GROUP}', or uninstall its package.",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Operation)):
        raise _refusal("An entry point names what is not an operation.", where, "a subclass of Operation")
    operation = kind()
    if getattr(kind, "name", None) != point.name:
        raise _refusal("An entry point has another name than its operation.", where, f"{kind.__name__}.name")
    if not operation.actions:
        raise _refusal(f"The operation '{operation.name}' does nothing.", where, "a class with plan, apply or both")
    # A field would hide the option of an action, or one that all commands have.
    taken = TAKEN.union(operation.actions).intersection(kind.Params.model_fields)
    if taken:
        raise _refusal(
            f"The operation '{operation.name}' has Params whose names are taken.",
            ", ".join(sorted(taken)),
            "other names",
        )
    return operation


def _refusal(what: str, got: str, allowed: str) -> ConfigError:
    return ConfigError.of(what, got=got, allowed=allowed, next_step="See docs/how-to/extending.md.")
