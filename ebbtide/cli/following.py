"""`ebbtide run --follow`: continuous runs of pipelines, all in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from ebbtide.cli.commands import VERBOSE, level
from ebbtide.cli.errors import NOTHING_MATCHED, error_text, exit_code, exit_with
from ebbtide.cli.live import Live, RunView
from ebbtide.cli.logs import log_names
from ebbtide.cli.quiet import QuietSpark, quiet_spark
from ebbtide.cli.reporting import Located, Reporter
from ebbtide.cli.stopping import restart, stop_on_signal
from ebbtide.errors import EbbtideError
from ebbtide.redaction import shown

if TYPE_CHECKING:
    from ebbtide.fleet import Ended, Failed, GoesOn
    from ebbtide.inspect import WatchedFleet
    from ebbtide.runtime import InTurn, Observer, RunSummary, StepProgress
    from ebbtide.spec import Pipeline

Report = Callable[[Reporter, str, "Pipeline", "RunSummary", Live], None]
"""Prints the summary of a run that has ended."""


class Followers:
    """Follows pipelines and prints events.

    Args:
        located: The pipelines.
        reporter: Prints errors.
        operate: Runs a pipeline in a session.
        report: Prints the summary of an ended run.
        watched: Watches them; None: metrics are not served.
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
        """Failing pipelines to the exit codes of their last errors."""
        self._ended: list[tuple[Pipeline, RunSummary]] = []
        self._looked_at_bad: set[str] = set()
        """Pipelines whose bad records were already checked in this process."""

    def run(self) -> None:
        """Follow them until all have ended."""
        from ebbtide.fleet import Fleet
        from ebbtide.runtime import Automatic

        with quiet_spark(self._reporter.root) as spark, stop_on_signal(spark.live) as stop:
            views = {spec.name: RunView(spark.live, as_json=self._reporter.as_json) for spec in self._specs}

            def follow(spec: Pipeline, *, in_turn: InTurn, observers: Sequence[Observer]) -> RunSummary:
                log_names(spec.name)
                view = views[spec.name]
                watching = [*observers, *self._watching(spec)]

                def step(progress: StepProgress) -> None:
                    view.step(progress)
                    self._warn_of_all_bad(spec, progress, spark)

                how: dict[str, Any] = {"on_progress": step, "on_phase": view.phase, "observers": watching}
                executor = Automatic(lambda: spark.session, spark.settings)
                return self._operate(executor, spec, self._reporter.root, stop=stop, in_turn=in_turn, **how)

            for event in Fleet(self._specs, follow, stop).events():
                copy_context().run(self._take, event, spark)
                if spark.has_died and not stop.is_set():
                    spark.live.say(
                        "Spark's JVM has ended. So this process ends: its service manager starts both again."
                    )
                    stop.set()
                del event  # an error holds the tables of its run
            spark.live.show("")
            # Only after all have ended: output of their work goes to the process' standard error.
            for spec, summary in self._ended:
                self._report(self._reporter, self._locations[spec.name], spec, summary, spark.live)
            if self._is_aged:
                spark.live.say("The run has reached max_run_age; a new process continues.")
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

    def _take(self, event: Ended | Failed | GoesOn, spark: QuietSpark) -> None:
        """Print an event."""
        from ebbtide.fleet import Ended, Failed

        name = event.spec.name
        log_names(name)  # only in this context
        if isinstance(event, Ended):
            self._ended.append((event.spec, event.summary))
        elif isinstance(event, Failed):
            self._codes[name] = exit_code(event.error)
            self._say_failed(event, spark)
        else:
            del self._codes[name]
            if self._watched is not None:
                self._watched.run(name).goes_on()
            spark.live.say(f"{name}: continues.")

    def _warn_of_all_bad(self, spec: Pipeline, progress: StepProgress, spark: QuietSpark) -> None:
        """Warn once that all records of a pipeline were bad so far. The run continues, since good ones may follow."""
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
            spark.live.say(f"{name}: restarts in {failed.again_s:g} s.")
