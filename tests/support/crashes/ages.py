"""Parts of a pipeline put back from copies of different ages, or missing; and the ways out that errors name, taken as a user takes them."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from local.local_pipeline import LATER, LocalPipeline, up

from ebbtide.delta import Snapshot
from ebbtide.errors import EbbtideError
from ebbtide.inspect import Lag
from ebbtide.runtime import idle_run

PARTS = ("state", "sink", "quarantine", "ledger")
WITH_CHANGELOG = (*PARTS, "changelog")
COMMAND = re.compile(r"'ebbtide ([a-z]+)([^']*)'")
KEPT = (1, 2, 4)
"""Runs of which copies are kept: one and several apart."""
AGES = (*KEPT, None)
FEWER_AGES = (2, 4, None)
EVERY = {"order": "arrival", "materializer": {"emission": "every"}}
MOST_ERRORS = 8
"""Errors that follow on each other: each names another part."""
Ages = Mapping[str, int | None]
Mix = tuple[int | None, ...]
"""The age of each part."""
Choice = Callable[[Sequence[tuple[str, str]]], tuple[str, str]]


def first(commands: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return commands[0]


def last(commands: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return commands[-1]


class AgedPipeline:
    """A pipeline with a copy of its parts after some runs.

    Args:
        pipeline: Without a run.
        put: Puts the records of a run, by its number.
        kept: Runs after which copies are kept; the last one is the last run.
    """

    def __init__(
        self,
        pipeline: LocalPipeline,
        put: Callable[[int], None],
        kept: Sequence[int],
    ) -> None:
        self.pipeline = pipeline
        self._copies = Path(pipeline.root).with_name("copies")
        self._sinks: dict[int, pa.Table] = {}
        self.losses: tuple[str, ...] = ()
        for number in range(1, max(kept) + 1):
            put(number)
            pipeline.run()
            if number in kept:
                shutil.copytree(pipeline.home, self._copies / str(number))
            self._note()
        self.right = self.shown()

    def shown(self) -> dict[str, Any]:
        """What the tables show."""
        pipeline = self.pipeline
        found: dict[str, Any] = {"rows": pipeline.rows()}
        found["quarantine"] = sorted(
            row["raw"] for row in pipeline.table("quarantine", pipeline.plan.quarantine.schema)
        )
        if pipeline.spec.emits_every:
            changelog = pipeline.table("changelog", pipeline.plan.changelog.schema)
            found["changelog"] = [(row["_kind"], row["id"], row["n"]) for row in changelog]
            found["changelog"].sort(key=str)
        return found

    def mix(self, ages: Ages) -> None:
        """Put each part back to an age; None: it is missing."""
        home = self.pipeline.home
        self.losses = ()
        shutil.rmtree(home, ignore_errors=True)
        for part, age in ages.items():
            copy = self._copies / str(age) / part
            if age is not None and copy.exists():
                shutil.copytree(copy, home / part)

    def settle(self, choose: Choice) -> list[str]:
        """Run until a run is not refused, and take a way out that each error names; return the errors."""
        said: list[str] = []
        work: Callable[[], Any] = self.pipeline.run
        while len(said) < MOST_ERRORS:
            try:
                work()
            except EbbtideError as error:
                said.append(f"{type(error).__name__}: {error}")
                work = self._way_out(str(error), choose)
            else:
                if work == self.pipeline.run:
                    return said
                work = self.pipeline.run
        raise AssertionError(" | ".join(["no way out:", *[text[:260] for text in said]]))

    def is_right(self) -> bool:
        """Whether the tables show what they must; what is appended alone may lack what a repair has said to be lost."""
        shown = self.shown()
        for name in ("quarantine", "changelog"):
            has_lost = any(loss.startswith(name) and "lost" in loss for loss in self.losses)
            if has_lost and Counter(shown[name]) <= Counter(self.right[name]):
                shown[name] = self.right[name]
        return shown == self.right

    def _way_out(self, error: str, choose: Choice) -> Callable[[], Any]:
        commands = [(name, given) for name, given in COMMAND.findall(error) if name not in ("resume", "clock")]
        assert commands, error
        name, given = choose(commands)
        pipeline = self.pipeline
        if name == "pause":
            return self._pause
        if name == "rewind":
            step = int(given.split()[1])
            return lambda: pipeline.act("rewind", to_step=step)
        if name == "repair":
            return self._repair
        assert name == "refresh", error
        return lambda: pipeline.do("refresh")

    def _pause(self) -> None:
        pipeline = self.pipeline
        pipeline.act("pause", reason="the ledger is gone")
        pipeline.act("resume")

    def _repair(self) -> None:
        """Repair; which rows the sink must have is what it had after the state's last step."""
        report = self.pipeline.repair(self._sinks[self.pipeline.last.frontier.total_records or 0])
        losing = [finding for finding in report["findings"] if finding["rows"]]
        self.losses += tuple(f"{finding['table']}: {finding['rows']}" for finding in losing)

    def _note(self) -> None:
        plan = self.pipeline.plan
        found = Snapshot.read(plan.sink.path)
        assert found is not None
        self._sinks[self.pipeline.last.frontier.total_records or 0] = found.rows(plan.sink.schema)


def nothing(pipeline: LocalPipeline) -> None:
    """The steps follow on each other."""


def refreshed(pipeline: LocalPipeline) -> None:
    """All is read again, in steps of another incarnation."""
    pipeline.do("refresh")


def rewound(pipeline: LocalPipeline) -> None:
    """Records are read again from the first step on."""
    pipeline.do("rewind")


def aged(pipeline: LocalPipeline, between: Callable[[LocalPipeline], None] = nothing) -> AgedPipeline:
    """A pipeline with copies of its parts; something was done before its last two runs."""

    def put(number: int) -> None:
        if number == 3:
            between(pipeline)
        pipeline.put(*lines_of_run(number))

    return AgedPipeline(pipeline, put, KEPT)


def lines_of_run(number: int) -> list[str]:
    """Rows of two keys and a new one, and a bad record."""
    return [up(1, 10 * number), up(number, 10 * number + 1), up(number + 10, number), "[" * number]


def pairwise(choices: Sequence[int | None], parts: Sequence[str]) -> list[Mix]:
    """Mixes in which each pair of parts has each pair of choices."""
    mixes = list(product(choices, repeat=len(parts)))
    Random(1).shuffle(mixes)
    left = set().union(*map(_pairs_of, mixes))
    chosen = []
    while left:
        best = max(mixes, key=lambda mix: len(_pairs_of(mix) & left))
        chosen.append(best)
        left -= _pairs_of(best)
    return chosen


def _pairs_of(mix: Mix) -> set[Any]:
    return set(combinations(enumerate(mix), 2))


def all_mixes(choices: Sequence[int | None], parts: Sequence[str], state: int | None) -> Iterator[Mix]:
    """All mixes in which the state, the first of the parts, is of one age."""
    return product([state], *[choices] * (len(parts) - 1))


def one_missing(parts: Sequence[str]) -> list[Mix]:
    """Mixes in which one part alone is missing."""
    newest = max(KEPT)
    return [tuple(None if part == missing else newest for part in parts) for missing in parts]


def refuse_wrong(aged: AgedPipeline, parts: Sequence[str], mixes: Iterable[Mix], choose: Choice) -> None:
    """Fail, and say what is wrong with which mixes, if something is."""
    wrong = [_judge(aged, parts, mix, choose) for mix in mixes]
    if any(wrong):
        pytest.fail("\n".join(filter(None, wrong)), pytrace=False)


class AllMixes:
    """Tests of all mixes of ages; a module of tests derives from it, and has the fixture `make`."""

    @pytest.mark.grid
    @pytest.mark.parametrize("state", AGES)
    @pytest.mark.parametrize("choose", [first, last])
    @pytest.mark.parametrize("between", [nothing, refreshed, rewound])
    def test_all_mixes_of_ages_end_right(self, make, between, choose, state):
        refuse_wrong(aged(make(), between), PARTS, all_mixes(AGES, PARTS, state), choose)

    @pytest.mark.grid
    @pytest.mark.parametrize("state", FEWER_AGES)
    @pytest.mark.parametrize("choose", [first, last])
    @pytest.mark.parametrize("between", [nothing, refreshed, rewound])
    def test_all_mixes_of_ages_end_right_with_a_changelog(self, make, between, choose, state):
        mixes = all_mixes(FEWER_AGES, WITH_CHANGELOG, state)
        refuse_wrong(aged(make(**EVERY), between), WITH_CHANGELOG, mixes, choose)


def _judge(aged: AgedPipeline, parts: Sequence[str], mix: Mix, choose: Choice) -> str:
    """Say what is wrong with what comes of a mix; empty if nothing is."""
    aged.mix(dict(zip(parts, mix, strict=True)))
    pipeline = aged.pipeline
    before = [
        _refusal(lambda: idle_run(pipeline.spec, pipeline.root, LATER)),
        _refusal(lambda: Lag.of(pipeline.spec, pipeline.root, LATER)),
    ]
    try:
        said = aged.settle(choose)
    except AssertionError as error:
        return f"{mix}: {error}"
    if not aged.is_right():
        return f"{mix}: {said} {aged.losses} {aged.shown()} instead of {aged.right}"
    if not pipeline.is_idle() and not said:
        return f"{mix}: not idle"
    return f"{mix}: nothing is refused before a run that says {said[0]}" if said and None in before else ""


def _refusal(look: Callable[[], Any]) -> str | None:
    """What is refused; None: nothing is waited for, or something waits."""
    try:
        found = look()
    except EbbtideError as error:
        return str(error)
    return "something is to be done" if found is None else None
