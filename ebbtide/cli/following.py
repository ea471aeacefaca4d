"""`ebbtide run --follow`: pipelines that go on until they are stopped, all in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from ebbtide.cli.commands import VERBOSE, level
from ebbtide.cli.errors import NOTHING_MATCHED, error_text, exit_code, exit_with
from ebbtide.cli.live import Live, RunView
from ebbtide.cli.quiet import QuietSpark, quiet_spark
from ebbtide.cli.reporting import Located, Reporter, say
from ebbtide.cli.stopping import restart, stop_on_signal
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.redaction import shown
from ebbtide.runtime._slots import pipeline_at_work

if TYPE_CHECKING:
    from ebbtide.fleet import Event, Failed
    from ebbtide.inspect import WatchedFleet
    from ebbtide.runtime import Observer, RunSummary, StepProgress
    from ebbtide.runtime._slots import InTurn
    from ebbtide.spec import Pipeline

Report = Callable[[Reporter, str, "Pipeline", "RunSummary", Live], None]
"""Prints the summary of a run that has ended."""


def going_on(located: Sequence[Located], *, follow: bool) -> list[Located]:
    """Return the pipelines that are followed; none if all end by themselves.

    Args:
        located: The pipelines.
        follow: All are to go on.

    Raises:
        ConfigError: some go on and some do not, or all that should are materialized views.
    """
    views = [spec.name for _, spec in located if spec.is_view]
    if follow and len(views) == len(located):
        raise ConfigError.of(
            "A materialized view is not followed: its refresh says when it is run.",
            got=", ".join(views),
            next_step="REFRESH MATERIALIZED VIEW and CREATE MATERIALIZED VIEW begin jobs that do (docs/reference/views.md).",
        )
    if follow and views:
        say(f"Not followed: {', '.join(views)}. The refresh of a materialized view says when it is run.")
    if follow:
        return [
            (location, spec.model_copy(update={"run": "continuous"})) for location, spec in located if not spec.is_view
        ]
    names = [spec.name for _, spec in located if spec.run == "continuous"]
    if names and len(names) < len(located):
        raise ConfigError.of(
            "Runs that go on and runs that end are not begun together.",
            got=f"run: continuous of {', '.join(names)}",
            next_step="Add --follow, by which all go on, or name them in two commands.",
        )
    return list(located) if names else []


class Followers:
    """Follows pipelines, and says what happens.

    Args:
        located: The pipelines.
        reporter: Prints errors.
        operate: Runs one in a session.
        report: Prints the summary of one that has ended.
        watched: Watches them; None: no one asks for metrics.
    """

    def __init__(
        self,
        located: Sequence[Located],
        reporter: Reporter,
        operate: Callable[..., RunSummary],
        report: Report,
        watched: WatchedFleet | None = None,
    ) -> None:
        self._locations = {spec.name: location for location, spec in located}
        self._specs = [spec for _, spec in located]
        self._reporter = reporter
        self._operate = operate
        self._report = report
        self._watched = watched
        self._codes: dict[str, int] = {}
        """Exit code of each pipeline that fails, by its last error."""
        self._ended: list[tuple[Pipeline, RunSummary]] = []
        self._looked_at_bad: set[str] = set()
        """Pipelines whose first bad records of this process were looked at."""

    def run(self) -> None:
        """Follow them until all have ended."""
        from ebbtide.fleet import Fleet
        from ebbtide.runtime import auto_session

        with quiet_spark(self._reporter.root) as spark, stop_on_signal(spark.live) as stop:
            views = {spec.name: RunView(spark.live, as_json=self._reporter.as_json) for spec in self._specs}

            def follow(spec: Pipeline, *, in_turn: InTurn, observers: Sequence[Observer]) -> RunSummary:
                view = views[spec.name]
                watching = [*observers, *self._watching(spec)]

                def step(progress: StepProgress) -> None:
                    view.step(progress)
                    self._warn_of_all_bad(spec, progress, spark)

                how: dict[str, Any] = {"on_progress": step, "on_phase": view.phase, "observers": watching}
                session = auto_session(lambda: spark.session, spark.settings)
                return self._operate(session, spec, self._reporter.root, stop=stop, in_turn=in_turn, **how)

            for event in Fleet(self._specs, follow, stop).events():
                copy_context().run(self._take, event, spark)
                if spark.has_died and not stop.is_set():
                    spark.live.say(
                        "Spark's JVM has ended. This process ends, too: its service manager starts both again."
                    )
                    stop.set()
                del event  # an error holds the tables of its run
            spark.live.show("")
            # Not before all have ended: what their work prints goes to standard error, of the whole process.
            for spec, summary in self._ended:
                self._report(self._reporter, self._locations[spec.name], spec, summary, spark.live)
            if self._is_aged:
                spark.live.say("As old as max_run_age lets it get; a new process goes on.")
                spark.end()
                restart(stop)
        codes = set(self._codes.values())
        if any(summary.nothing_matched for _, summary in self._ended):
            codes.add(NOTHING_MATCHED)
        exit_with(codes)

    def _watching(self, spec: Pipeline) -> list[Observer]:
        return [] if self._watched is None else [self._watched.run(spec.name)]

    @property
    def _is_aged(self) -> bool:
        return any(summary.is_aged for _, summary in self._ended)

    def _take(self, event: Event, spark: QuietSpark) -> None:
        """Say what has happened."""
        from ebbtide.fleet import Ended, Failed

        name = event.spec.name
        pipeline_at_work.set(name)  # for the log, in this context alone
        if isinstance(event, Ended):
            self._ended.append((event.spec, event.summary))
        elif isinstance(event, Failed):
            self._codes[name] = exit_code(event.error)
            self._say_failed(event, spark)
        else:
            del self._codes[name]
            if self._watched is not None:
                self._watched.run(name).goes_on()
            spark.live.say(f"{name}: goes on.")

    def _warn_of_all_bad(self, spec: Pipeline, progress: StepProgress, spark: QuietSpark) -> None:
        """Say once that all records of a pipeline were bad so far: the run goes on, as good ones may come."""
        if not progress.counts["quarantined"] or spec.name in self._looked_at_bad:
            return
        from ebbtide.inspect import fault_of_all_bad

        self._looked_at_bad.add(spec.name)
        fault = fault_of_all_bad(spec, self._reporter.root)
        if fault is not None:
            text = error_text(fault, self._reporter.root, self._locations[spec.name])
            spark.live.say(shown(f"{spec.name}: {text}"))

    def _say_failed(self, failed: Failed, spark: QuietSpark) -> None:
        error = failed.error
        name = failed.spec.name
        if self._watched is not None:
            self._watched.run(name).failed(error)
        self._reporter.say(error, self._locations[name], spark)
        is_ours = isinstance(error, EbbtideError)
        if not is_ours and level() != VERBOSE:
            spark.live.say(shown("".join(format_exception(error))).rstrip())
        if not is_ours and spark.tail():
            spark.live.say(shown(spark.tail()))
        if failed.again_s is not None:
            spark.live.say(f"{name}: begun again in {failed.again_s:g} s.")
