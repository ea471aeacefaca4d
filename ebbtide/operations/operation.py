"""The contract of an operation: work on a pipeline's tables that a person, a schedule or a script asks for.

One class per operation. Its command, its `--help`, its Dagster job and its section of docs/reference/operations.md are made from it:

| of the class | becomes |
|---|---|
| `name` | the command, a dot starting a subcommand: `backfill.swap` is `ebbtide backfill swap`; the job is `NAME_backfill_swap` |
| docstring | the help of the command, the description of the job |
| `Params` | an option of the command and a setting of the job for each field: its description is the help |
| `plan`, `apply` | with both, the operation only plans unless `--apply` or `action: apply`; with one of them, that is what it does |
| `Report` | lines on the terminal, JSON with `--json`, metadata of an observation in Dagster |

Importing this module loads no Spark, and neither may a module that holds an operation: methods import what they work with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ebbtide.errors import ConfigError
from ebbtide.runtime.clock import Clock, system_clock
from ebbtide.runtime.progress import OnPhase, OnProgress
from ebbtide.spec.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Report:
    """What an operation would do to a pipeline, or did; the same for the terminal, for JSON and for Dagster.

    Args:
        pipeline: Name of the pipeline.
        lines: For people. The first is a sentence about the pipeline, without its name.
        counts: Numbers by name, which Dagster plots; None where one is unknown. A name that ends in `_ms` is a time, epoch ms.
        details: Other values by name, as JSON has them.
        step: The step that did it; None of a plan, and where there was nothing to do.
        next_step: What a person does next, in a sentence that names the command as `'ebbtide repair --apply'`; empty: nothing.

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

    def __getitem__(self, name: str) -> Any:
        """Return a value by its name in `as_dict`."""
        return self.as_dict()[name]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"pipeline": self.pipeline, **self.counts, **self.details, "step": self.step}

    def text(self) -> str:
        """Write it for a terminal."""
        first, *further = self.lines
        if self.next_step:
            further.append(self.next_step)
        return "\n  ".join([f"{self.pipeline}: {first}", *further])


def ignore(_: object) -> None:
    """Leave progress be: an operation is not watched."""


@dataclass(frozen=True)
class Context:
    """What an operation works on and with.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        session: Starts Spark when it is first called; an operation that does not call it needs no JVM.
        by: Who asks.
        clock: Returns the time, epoch ms.
        on_progress: To be called after each step that reads records.
        on_phase: To be called as each phase begins.
        stop: Set to end after the step under way; only asked by an operation that `can_stop`.
    """

    spec: Pipeline
    root: str
    session: Callable[[], SparkSession]
    by: str = ""
    clock: Clock = system_clock
    on_progress: OnProgress = ignore
    on_phase: OnPhase = ignore
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def spark(self) -> SparkSession:
        """The session; started now if it was not."""
        return self.session()

    @property
    def now_ms(self) -> int:
        """The time, epoch ms."""
        return self.clock()


class Operation:
    """Base class of operations. A subclass has a `name`, a docstring, perhaps `Params`, and `plan`, `apply` or both."""

    name: ClassVar[str]
    """Lower-case words; a dot before the last one makes it a subcommand."""
    job: ClassVar[str] = ""
    """Name of its Dagster job behind the pipeline's, where it is not `name` with underscores."""
    observed: ClassVar[Literal["state", "sink"]] = "sink"
    """Table whose asset shows the report in Dagster."""
    takes_turns: ClassVar[bool] = True
    """Its Dagster runs wait in the queue until no run of the pipeline is under way."""
    can_stop: ClassVar[bool] = False
    """It makes several steps, and ends between two of them once `Context.stop` is set."""
    prefix: ClassVar[str] = ""
    """Put before the names of its counts in Dagster, where they would be mistaken for those of the pipeline's runs."""
    further: ClassVar[Mapping[str, str]] = {}
    """Methods beside `plan` and `apply`, each with its help: `{"undo": "Undo the last step."}` is `--undo` and `action: undo`."""
    of_one: ClassVar[frozenset[str]] = frozenset()
    """Fields of `Params` that concern one pipeline, so that a command given several refuses them."""

    needed: ClassVar[tuple[str, ...]] = ()
    """Fields of `Params` that `apply` takes a text in, though a plan does not."""

    class Params(BaseModel):
        """What the operation is asked for, beside the pipeline.

        A field's description is the option's help, its `alias` the option's name where that differs, its `title` the word that
        stands for the value in the help. Types are those that a command line and Dagster both have: str, int, bool, list, Literal.
        """

        model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def plan(self, ctx: Context, params: Any) -> Report:
        """Return what the operation would do, or what it looks up. Changes nothing."""
        raise NotImplementedError

    def apply(self, ctx: Context, params: Any) -> Report:
        """Do it."""
        raise NotImplementedError

    def watch(self, ctx: Context) -> Report | None:
        """Return how far the operation is, from another thread, while it makes steps; None: only its steps are shown."""
        return None

    def fits(self, spec: Pipeline) -> bool:
        """Return whether a pipeline of this kind can have it; if not, Dagster makes no job."""
        return True

    def asked(self, given: Mapping[str, Any]) -> BaseModel:
        """Return what was asked for.

        Args:
            given: Values by the names of `Params`' fields.

        Raises:
            ConfigError: they are not usable.
        """
        try:
            return self.Params.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            named = ".".join(map(str, first["loc"]))
            raise ConfigError.of(
                f"What '{self.command}' was asked for is not usable: {named}: {first['msg']}.", got=first["input"]
            ) from error

    def act(self, action: str, ctx: Context, params: Any) -> Report:
        """Do one of its `actions`.

        Raises:
            ConfigError: it needs a text that was not given.
        """
        blank = [name for name in self.needed if action == "apply" and not getattr(params, name).strip()]
        if blank:
            raise ConfigError.of(
                f"To apply '{self.command}' takes a {blank[0]}.", got="none", allowed="a text, kept with the step"
            )
        report: Report = getattr(self, action)(ctx, params)
        return report

    @property
    def actions(self) -> tuple[str, ...]:
        """What it can be asked to do, what it does unless asked otherwise first.

        Example:
            >>> class Forget(Operation):
            ...     def apply(self, ctx, params): ...
            >>> Forget().actions
            ('apply',)
        """
        kind = type(self)
        own = [name for name in ("plan", "apply") if getattr(kind, name) is not getattr(Operation, name)]
        return (*own, *self.further)

    @property
    def description(self) -> str:
        """First paragraph of the docstring, on one line."""
        paragraph = (type(self).__doc__ or self.name).split("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def is_planned(self) -> bool:
        """Whether it only plans unless it is asked to do it."""
        return self.actions[:2] == ("plan", "apply")

    @property
    def command(self) -> str:
        """How it is typed behind `ebbtide`.

        Example:
            >>> class Swap(Operation):
            ...     name = "backfill.swap"
            >>> Swap().command, Swap().job_name
            ('backfill swap', 'backfill_swap')
        """
        return self.name.replace(".", " ")

    @property
    def job_name(self) -> str:
        """Name of its Dagster job behind the pipeline's."""
        return self.job or self.name.replace(".", "_").replace("-", "_")
