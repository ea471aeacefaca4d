"""What operators see of faults, and their way out: each fault is made for real, and every tool is asked before and after the next run.

A row of the table says of one fault how the next run ends, what `status`, `check`, the metrics, the alerts and Dagster show, and what cures it:
commands as `status` names them, or what a person does whom it tells so. Nothing is green where a run is refused.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from crashes import operated
from crashes.damages import FOREIGN, alters, drop, replace_table
from crashes.operated import (
    MORE,
    ROWS,
    Make,
    Operated,
    Seen,
    change_spec,
    cut_files,
    earlier,
    lose,
    lose_files,
    lose_first_commit,
    spec_back,
    tear,
)
from frame.exit_codes import FAILED, PAUSED, REFUSED, USAGE
from frame.limits import limits
from frame.parts import PROMTOOL, needs
from local.local_pipeline import Kept
from local.local_run import ADOPTED
from local.metrics_support import Samples

MISFIT, FOREIGN_WRITES, PAUSE = ("ebbtide_misfit",), ("ebbtide_foreign_writes",), ("ebbtide_paused",)
TABLES, SOURCE = ("ebbtide_readable", "tables"), ("ebbtide_readable", "source")
REFUSAL = "t: the next run is refused: "


@dataclass(frozen=True)
class Row:
    """A row of the table; the values not given are those of a pipeline whose every run is refused.

    Args:
        make: Makes the fault.
        run: What the next run says; empty: it succeeds.
        exit_code: The exit code that it ends with.
        level: The level that `status` shows before it.
        exit_code_after: Exit code of `status` after it.
        checks: The checks that are red.
        samples: Samples of the metrics.
        alerts: The rules that fire.
        launches: Dagster launches a run: its failure is what pages.
        says: What Dagster's sensor says.
        advice: Words by which `status`, or the run, says what to do.
        hand: What a person does then.
        cure: Commands that follow, each as `status` or the one before names it.
        around: Makes the fault while it is looked at; its end is the cure.
        order: Order of the pipeline.
        rows: Rows of the sink in the end.
    """

    make: Make = operated.nothing
    run: str = "TableMismatchError"
    exit_code: int = REFUSED
    level: str = "refused"
    exit_code_after: int = REFUSED
    checks: tuple[str, ...] = ("next_run",)
    samples: Samples = field(default_factory=lambda: {MISFIT: 1, SOURCE: 1})
    alerts: frozenset[str] = frozenset({"EbbtideRefused"})
    launches: bool = True
    says: str = REFUSAL
    advice: str = ""
    hand: Make = operated.nothing
    cure: tuple[str, ...] = ()
    around: Callable[[Operated], AbstractContextManager[None]] = nullcontext
    order: str = "sequence"
    rows: dict[int, int] = field(default_factory=lambda: ROWS)

    def seen_as(self, *alerts):
        """The same, with other alerts."""
        return replace(self, alerts=frozenset(alerts))


UNASKED = partial(
    Row, samples={MISFIT: 1, TABLES: 1, SOURCE: 0}, alerts=frozenset({"EbbtideRefused", "EbbtideUnreadable"})
)
"""A fault for which the source is not asked, as what was read is unknown, or cannot be."""
UNREAD = partial(UNASKED, run="DeltaLogError", samples={MISFIT: 1, TABLES: 0, SOURCE: 0})
"""One for which a log cannot be read."""
LOOK = partial(
    Row,
    run="",
    exit_code=0,
    level="attention",
    exit_code_after=FAILED,
    checks=(),
    samples={MISFIT: 0, SOURCE: 1},
    alerts=frozenset(),
    says="t: waiting: 1 file",
)
"""What runs go on with, and a person is to look at."""
READ = partial(LOOK, exit_code=REFUSED, level="healthy")
"""What only a run can find, as it reads records: then its failure is seen."""
WRITTEN = partial(
    LOOK,
    checks=("foreign_writes",),
    samples={FOREIGN_WRITES: 1, MISFIT: 0},
    alerts=frozenset({"EbbtideForeignWrites"}),
    cure=("repair", "check"),
)
"""A write of another client: runs go on, until it is put right or accepted."""
DONE = partial(LOOK, launches=False, says="nothing waits")
"""What a run has just done."""
ALONE = {"advice": "move its folder away", "cure": ("pause", "resume")}

FAULTS = {
    "another type of a column": Row(
        change_spec(schema="id BIGINT, n BIGINT"), run="SpecChangedError", cure=("migrate",)
    ),
    "another key": Row(change_spec(key=["id", "n"]), run="SpecChangedError", cure=("refresh",)),
    "another order": Row(change_spec(order="upsert"), run="SpecChangedError", cure=("refresh",)),
    "another ttl": Row(change_spec(ttl="40d"), run="SpecChangedError", cure=("migrate",)),
    "another format": Row(
        change_spec(format={"type": "plain", "row": None}),
        run="SpecChangedError",
        advice="change it back",
        hand=spec_back,
    ),
    "Spark where there is none": Row(
        operated.need_spark,
        run="cannot run without Spark",
        exit_code=USAGE,
        advice="Run it with --engine spark",
        hand=spec_back,
    ),
    "source moved": Row(operated.move_source, run="SpecChangedError", cure=("run",)),
    "source gone": UNASKED(operated.no_source, run="SourceReadError", advice="Create it", hand=operated.source_again),
    "file that was read has grown": UNASKED(operated.append_to_source, run="FileChangedError", cure=("run",)),
    "file under a late name": UNASKED(
        operated.late_file, run="LateFileError", advice="greater names", hand=operated.late_file_later, order="arrival"
    ),
    "file torn": READ(
        operated.torn_archive,
        run="SourceReadError",
        says="t: waiting: 2 files",
        advice="Restore the whole file",
        hand=operated.whole_archive,
    ),
    "sink gone": UNASKED(drop, cure=("repair",)),
    "sink put back": UNASKED(earlier("sink"), cure=("repair",)),
    "sink replaced": UNASKED(replace_table, cure=("repair",)),
    "sink's columns changed": Row(lambda it: alters(it.plan.sink.path, n={"type": "date"}), cure=("refresh",)),
    "sink's files gone": Row(lose_files("sink"), run="DamagedFileError", cure=("repair",)),
    "sink's files cut": Row(cut_files("sink"), run="DamagedFileError", cure=("repair",)),
    "sink's log torn": UNREAD(tear("sink"), cure=("repair",)),
    "sink's log with a gap": UNREAD(lose_first_commit("sink"), cure=("repair",)),
    "feature of the sink turned on": Row(
        operated.has_feature, run="DeltaFeatureError", advice="DROP FEATURE", hand=operated.no_feature
    ),
    "sink made append-only": Row(
        operated.append_only("true"),
        run="DeltaFeatureError",
        advice="UNSET TBLPROPERTIES",
        hand=operated.append_only("false"),
    ),
    "table of another client in the sink's place": UNASKED(
        operated.theirs, cure=("adopt",), rows={**ROWS, **{row["id"]: row["n"] for row in ADOPTED}}
    ),
    **{f"rows of the sink, by {name}": WRITTEN(make) for name, make in FOREIGN.items()},
    "state gone": UNASKED(lose("state"), cure=("refresh",)),
    # What was counted, falls.
    "state put back": UNASKED(earlier("state"), cure=("rewind",)).seen_as(
        "EbbtideRefused", "EbbtideUnreadable", "EbbtideQuarantineRate"
    ),
    "rows of the state changed": UNASKED(
        operated.rows_of_the_state_changed, checks=("next_run", "foreign_writes"), cure=("repair", "check")
    ).seen_as("EbbtideRefused", "EbbtideUnreadable", "EbbtideForeignWrites"),
    "state's files gone": UNASKED(lose_files("state"), run="DamagedFileError", cure=("refresh", "refresh")),
    "state's files cut": UNASKED(cut_files("state"), run="DamagedFileError", cure=("refresh", "refresh")),
    "state's log torn": UNREAD(tear("state"), advice="move its folder away", hand=lose("state"), cure=("refresh",)),
    "ledger gone": UNASKED(lose("ledger"), cure=("pause", "resume")),
    "ledger put back": UNASKED(earlier("ledger"), cure=("pause", "resume")),
    "ledger's log torn": UNREAD(tear("ledger"), hand=lose("ledger"), **ALONE),
    "ledger's log with a gap": UNREAD(lose_first_commit("ledger"), hand=lose("ledger"), **ALONE),
    "quarantine gone": UNASKED(lose("quarantine"), cure=("repair",)),
    "quarantine put back": UNASKED(earlier("quarantine"), cure=("repair",)),
    "quarantine's log torn": UNREAD(tear("quarantine"), cure=("repair",)),
    "quarantine's files gone": Row(lose_files("quarantine"), run="DamagedFileError", cure=("repair",)),
    "quarantine's files cut": Row(cut_files("quarantine"), run="DamagedFileError", cure=("repair",)),
    "all records bad": DONE(
        operated.all_bad,
        run="All records that",
        exit_code=FAILED,
        advice="Correct the spec",
        hand=operated.good_source,
        cure=("refresh",),
    ).seen_as("EbbtideLastRunFailed", "EbbtideQuarantineRate"),
    "too many bad records": DONE(
        operated.many_bad, checks=("quarantine_rate",), cure=("check", "acknowledge", "check")
    ).seen_as("EbbtideCheckFailed", "EbbtideQuarantineRate"),
    "step of bad records": READ(
        operated.too_many_at_once, run="QuarantineThresholdError", advice="raise the limit", hand=spec_back
    ),
    "unknown column": READ(
        operated.unknown_column, run="SchemaDriftError", advice="or set schema_evolution_mode", hand=spec_back
    ),
    "paused": LOOK(
        operated.pause,
        run="PausedError",
        exit_code=PAUSED,
        level="paused",
        exit_code_after=PAUSED,
        samples={MISFIT: 0, PAUSE: 1},
        launches=False,
        says="Run 'ebbtide resume'",
        cure=("resume",),
    ),
    "clock ahead": DONE(operated.step_at(30), advice="29 days 23 h ahead", cure=("clock",)).seen_as(
        "EbbtideClockAhead"
    ),
    "clock held": DONE(operated.held_clock, advice="the clock is held", cure=("clock",)).seen_as("EbbtideClockHeld"),
    "run killed": LOOK(operated.killed, exit_code_after=0, advice="the last run died").seen_as("EbbtideLastRunFailed"),
    "records old": LOOK(operated.old_records, exit_code_after=0, advice="records have waited for 5 h").seen_as(
        "EbbtideOld"
    ),
    "no right to write": Row(run="StoreRefusedError", advice="Give that user the right", around=operated.no_rights),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Pipelines by their order, each made once, and the metrics that they have while all is well."""
    known = {}

    def again(order):
        if order not in known:
            fields = {"order": "arrival"} if order == "arrival" else {}
            with limits():
                pipeline = Operated(tmp_path_factory.mktemp(order), **fields)
                pipeline.prepare()
                known[order] = Kept(pipeline), pipeline.scraped()
        found, well = known[order]
        return found.again(), well

    return again


@needs(PROMTOOL)
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_seen_by_every_tool_and_cured_by_what_status_names(kept, fault):
    row = FAULTS[fault]
    pipeline, well = kept(row.order)
    pipeline.put(MORE)
    row.make(pipeline)
    with row.around(pipeline):
        seen = Seen.of(pipeline, well)
        checked = pipeline.order("check", "--json", *(f"--only={name}" for name in {*row.checks, "next_run"}))
        ended = pipeline.order("run")
        after = pipeline.order("status")
    outcomes = [json.loads(line) for line in checked.stdout.splitlines() if line.startswith("{")]
    red = {each["check"] for each in outcomes if each["outcome"] == "failed"}
    said = seen.text + ended.output + after.output
    cells = {
        "run": (row.run in ended.output and ended.exit_code, row.exit_code),
        "status": (seen.level, row.level),
        "status after the run": (after.exit_code, row.exit_code_after),
        "check": (red if outcomes else checked.exit_code, set(row.checks) if outcomes else REFUSED),
        "metrics": ({sample: seen.samples.get(sample) for sample in row.samples}, row.samples),
        "alerts": (seen.alerts, row.alerts),
        "launched": (seen.launched, ["t"] if row.launches else []),
        "sensor": (row.says if row.says in seen.said else seen.said, row.says),
        "advice": (row.advice if row.advice in said else said, row.advice),
    }
    assert {name: cell for name, cell in cells.items() if cell[0] != cell[1]} == {}
    assert ended.exit_code == 0 or after.exit_code != 0, "nothing is green where a run is refused"
    row.hand(pipeline)
    assert pipeline.follow_up(row.cure) == []
    cured = pipeline.order("run")
    assert cured.exit_code == 0, cured.output
    healthy = pipeline.order("status")
    assert healthy.exit_code == 0, healthy.output
    assert pipeline.rows() == row.rows
