"""The contract of an operation: work on a pipeline's tables that a person, a schedule or a script asks for.

One class per operation. Its command, its `--help`, its Dagster job and its section of docs/reference/operations.md are made from it:

| part of the class | becomes |
|---|---|
| `name` | the command, a dot starting a subcommand: `backfill.swap` is `ebbtide backfill swap`; the job is `ebbtide_backfill_swap` |
| docstring | the help of the command, the description of the job |
| `Params` | an option of the command and a setting of the job for each field: its description is the help |
| `plan`, `apply` | with both, the operation only plans unless `--apply` or `action: apply`; with one of them, it does that |
| `Report` | lines on the terminal, JSON with `--json`, metadata of an observation in Dagster |

Importing this module loads no Spark, nor may importing an operation's module: methods import what they need.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ebbtide.errors import ConfigError, MissingExtraError
from ebbtide.runtime import Phase, StepProgress, system_clock

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.spec import Pipeline


@dataclass(frozen=True)
class Report:
    """The report of an operation on one pipeline, planned or done, for the terminal, JSON and Dagster.

    Args:
        pipeline: Name of the pipeline.
        lines: For people. The first is a sentence about the pipeline, without its name.
        counts: Numbers by name, which Dagster plots; None where one is unknown. A name that ends in `_ms` is a time, epoch ms.
        details: Other values by name, as JSON has them.
        step: The step that did it; None for a plan, or if there was nothing to do.
        next_step: The next step for a person, a sentence with the command as `'ebbtide repair --apply'`; empty: nothing.
        has_matched: A requested item exists; otherwise the command ends with exit code 3.

    Example:
        >>> report = Report("orders", ["2 rows to adopt."], {"rows": 2}, next_step="To do it: 'ebbtide adopt --apply'.")
        >>> print(report.text())
        orders: 2 rows to adopt.
          To do it: 'ebbtide adopt --apply'.
        >>> report["rows"], report.as_dict()
        (2, {'pipeline': 'orders', 'rows': 2, 'step': None})
    """

    pipeline: str
    lines: Sequence[str]
    counts: Mapping[str, float | None] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None
    next_step: str = ""
    has_matched: bool = True

    def __getitem__(self, name: str) -> Any:
        """Return a value by its name in `as_dict`."""
        return self.as_dict()[name]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"pipeline": self.pipeline, **self.counts, **self.details, "step": self.step}

    def text(self) -> str:
        """Return the report as text for a terminal."""
        first, *further = self.lines
        if self.next_step:
            further.append(self.next_step)
        lines = [f"{self.pipeline}: {first}", *further]
        return "\n  ".join(lines)


def ignore(_: object) -> None:
    """Discard a report of progress."""


DRY_RUN = "Show files, rows and bytes that would go."
"""Help of the `dry_run` of an operation that deletes, and applies by default."""


@dataclass(frozen=True)
class Context:
    """The pipeline of an operation, and the means for its work.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        executor: Runs the work; Spark starts once an operation needs it.
        by: Who asks.
        clock: Returns the time, epoch ms.
        on_progress: Call it after each step that reads records.
        on_phase: Call it as each phase begins.
        stop: Set to end after the current step; only used by an operation that `can_stop`.
        beside: Returns the project's known specs.
        data_docs: Folder of the Data Docs of all pipelines; None: unknown.
    """

    spec: Pipeline
    root: str
    executor: Executor
    by: str = ""
    clock: Callable[[], int] = system_clock
    on_progress: Callable[[StepProgress], None] = ignore
    on_phase: Callable[[Phase], None] = ignore
    stop: threading.Event = field(default_factory=threading.Event)
    beside: Callable[[], Sequence[Pipeline]] = tuple
    data_docs: Path | None = None

    @property
    def now_ms(self) -> int:
        """The time, epoch ms."""
        return self.clock()


class Operation:
    """Base class of operations. A subclass has a `name`, a docstring, perhaps `Params`, and `plan`, `apply` or both."""

    name: ClassVar[str]
    """Lower-case words; a dot before the last one makes it a subcommand."""
    job: ClassVar[str] = ""
    """Name of its Dagster job after `ebbtide_`, if it differs from `name` with underscores."""
    observed: ClassVar[Literal["state", "sink"]] = "sink"
    """Table whose asset shows the report in Dagster."""
    takes_turns: ClassVar[bool] = True
    """Its Dagster runs wait in the queue while a run of the pipeline is active."""
    can_stop: ClassVar[bool] = False
    """It makes several steps, and ends between two of them once `Context.stop` is set."""
    prefix: ClassVar[str] = ""
    """Prefix of its counts' names in Dagster, if they could be mistaken for those of the pipeline's runs."""
    further: ClassVar[Mapping[str, str]] = {}
    """Methods in addition to `plan` and `apply`, each with its help: `{"undo": "Undo the last step."}` is `--undo` and `action: undo`."""
    of_one: ClassVar[frozenset[str]] = frozenset()
    """Fields of `Params` that concern one pipeline: a command with several pipelines refuses them."""

    needed: ClassVar[tuple[str, ...]] = ()
    """Fields of `Params` that need a text for `apply` but not for a plan."""

    class Params(BaseModel):
        """The parameters of the operation.

        A field's description is the option's help, its `alias` the option's name where that differs, its `title` the
        placeholder of the value in the help. Types must be known to both a command line and Dagster: str, int, bool,
        list, Literal.
        """

        model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def plan(self, ctx: Context, params: Any) -> Report:
        """Return the plan of the operation, or the answer of a lookup. Changes nothing."""
        raise NotImplementedError

    def apply(self, ctx: Context, params: Any) -> Report:
        """Perform the operation."""
        raise NotImplementedError

    def watch(self, ctx: Context) -> Report | None:
        """Return its progress, from another thread, while it makes steps. None: only its steps are shown."""
        return None

    def fits(self, spec: Pipeline) -> bool:
        """Return whether the operation applies to a pipeline; otherwise the pipeline is not a partition of its Dagster job."""
        return True

    def early(self, spec: Pipeline) -> tuple[str, Mapping[str, Any]] | None:
        """Return the schedule for an early start, and parameters for `why_not`.

        Returns:
            A cron expression, as in the spec, and values by the names of `Params`' fields; None: no early start.
        """
        return None

    def why_not(self, ctx: Context, params: Any) -> str:
        """Return why applying it is not worth its cost now; empty: it is. This must be cheap: schedules call it."""
        return ""

    def asked(self, given: Mapping[str, Any]) -> BaseModel:
        """Return the parameters, validated.

        Args:
            given: Values by the names of `Params`' fields.

        Raises:
            ConfigError: a value is not usable.
        """
        try:
            return self.Params.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            named = ".".join(map(str, first["loc"]))
            raise ConfigError.of(
                f"A parameter of '{self.command}' is not usable: {named}: {first['msg']}.", got=first["input"]
            ) from error

    def act(self, action: str, ctx: Context, params: Any) -> Report:
        """Perform one of its `actions`.

        Raises:
            ConfigError: it needs a text that was not given.
        """
        needed = self.needed if action == "apply" else ()
        for name in needed:
            if not getattr(params, name).strip():
                raise ConfigError.of(
                    f"Applying '{self.command}' needs a {name}.",
                    got="none",
                    allowed="a text, kept with the step",
                )
        # A plan does not start Spark for data that the driver can read.
        engine = "auto" if action == "plan" else ctx.spec.engine
        executor = ctx.executor.for_pipeline(engine, runs_user_code=ctx.spec.runs_user_code)
        executor.describe(f"{ctx.spec.name}: {self.command}")
        try:
            report: Report = getattr(self, action)(replace(ctx, executor=executor), params)
        except ModuleNotFoundError as missing:
            raise MissingExtraError.in_place_of(missing) from missing
        return report

    @staticmethod
    def option_of(name: str) -> str:
        """Return the option of a command for an action of its operation, or for a field of the parameters."""
        words = name.replace("_", "-")
        return f"--{words}"

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that it has; the first is its default.

        Example:
            >>> class Forget(Operation):
            ...     def apply(self, ctx, params): ...
            >>> Forget().actions
            ('apply',)
        """
        kind = type(self)
        own = []
        for name in ("plan", "apply"):
            is_own = getattr(kind, name) is not getattr(Operation, name)
            if is_own:
                own.append(name)
        return (*own, *self.further)

    @property
    def description(self) -> str:
        """First paragraph of the docstring, on one line."""
        paragraph = (type(self).__doc__ or self.name).split("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def is_planned(self) -> bool:
        """Return whether it only plans unless asked to apply."""
        return self.actions[:2] == ("plan", "apply")

    @property
    def command(self) -> str:
        """The words of its command after `ebbtide`.

        Example:
            >>> class Swap(Operation):
            ...     name = "backfill.swap"
            >>> Swap().command, Swap().job_name
            ('backfill swap', 'backfill_swap')
        """
        return self.name.replace(".", " ")

    @property
    def job_name(self) -> str:
        """Name of its Dagster job after `ebbtide_`."""
        return self.job or self.name.replace(".", "_").replace("-", "_")
