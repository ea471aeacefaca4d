"""All operations: the built-in ones and those of other packages. Importing this loads no Spark.

A package adds an operation by an entry point whose name is the operation's:

```toml
[project.entry-points."ebbtide.operations"]
audit = "my_project.audit:Audit"
```
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ebbtide.errors import ConfigError
from ebbtide.operations._built_in import BUILT_IN, GROUP, added, first_word
from ebbtide.operations._operation import Context, Operation, Report
from ebbtide.runtime import system_clock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pyspark.sql import SparkSession

    from ebbtide.executors import Executor
    from ebbtide.spec import Pipeline

TAKEN = frozenset({"action", "as_json", "root", "specs"})
"""Names that a field of `Params` cannot have: every command or job uses them."""
TAKEN_NAMES = frozenset(
    {
        "check",
        "lag",
        "new",
        "refresh",
        "replay",
        "report",
        "run",
        "runs",
        "sql",
        "sql-gateway",
        "state",
        "status",
        "stream",
    }
)
"""Names that an operation cannot have: other commands, and the jobs that run and check a pipeline."""


def built_in(first: str | None = None) -> list[Operation]:
    """Load the built-in operations.

    Args:
        first: Only those whose command begins with this word. Default: all.
    """
    found = []
    for name, listed in BUILT_IN.items():
        if first in (None, first_word(name)):
            kind = resolve_name(f"ebbtide.operations.{listed.place}")
            found.append(kind())
    return found


def operations(first: str | None = None) -> tuple[Operation, ...]:
    """Return all operations, by name.

    Args:
        first: Only those whose command begins with this word; other packages' are not loaded then. Default: all.

    Raises:
        ConfigError: a package's operation cannot be loaded, or has a name that is taken.
    """
    found = {operation.name: operation for operation in built_in(first)}
    for point in added():
        if first not in (None, first_word(point.name)):
            continue
        group = first_word(point.name)
        groups = map(first_word, found)
        is_hidden = group in found or point.name in groups  # a command is not a group of commands
        if is_hidden or point.name in found or group in TAKEN_NAMES:
            raise ConfigError.of(
                f"Two operations or commands have the name '{point.name}'.",
                got=point.value,
                next_step=f"Rename one in its entry point '{GROUP}', or uninstall its package.",
            )
        found[point.name] = _loaded(point)
    return tuple(found[name] for name in sorted(found))


def maintain(
    executor: Executor | SparkSession,
    spec: Pipeline,
    root: str,
    job: str,
    *,
    clock: Callable[[], int] = system_clock,
) -> Report:
    """Run one maintenance job on a pipeline's tables.

    Args:
        root: Folder of all pipelines' tables.
        job: Name of the job: cleanup, compaction, vacuum, or that of an installed package.
        clock: Returns the time, epoch ms.

    Raises:
        ConfigError: the maintenance job does not exist.
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    from ebbtide.operations._maintenance import jobs
    from ebbtide.sessions import executor_of

    maintenance = [each for each in operations() if isinstance(each, jobs.Maintenance)]
    by_job = {each.job_name: each for each in maintenance}
    if job not in by_job:
        raise ConfigError.of(
            "The maintenance job does not exist.",
            got=job,
            allowed=", ".join(by_job),
        )
    work = by_job[job]
    ctx = Context(spec, root, executor_of(executor), clock=clock)
    return work.apply(ctx, work.Params())


def _loaded(point: EntryPoint) -> Operation:
    """Load an operation of a package; refuse other objects."""
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
        raise _refusal("An entry point does not name an operation.", where, "a subclass of Operation")
    operation = kind()
    if getattr(kind, "name", None) != point.name:
        raise _refusal("An entry point has another name than its operation.", where, f"{kind.__name__}.name")
    if not operation.actions:
        raise _refusal(f"The operation '{operation.name}' does nothing.", where, "a class with plan, apply or both")
    # A field would hide the option of an action, or a common option.
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
