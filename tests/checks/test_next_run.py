"""The check `next_run` is red while runs are refused, and says why."""

import shutil

from local.local_pipeline import LATER, up
from local.metrics_support import command
from oracles.judging import verdict_of


def judged(pipeline):
    return verdict_of(None, pipeline.plan, "next_run", clock_ms=LATER)


def test_check_fails_while_the_next_run_is_refused(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    assert judged(pipeline).passed
    pipeline.source.rename(pipeline.source.with_name("away"))
    verdict = judged(pipeline)
    [broken] = [finding for finding in verdict.findings if finding.broken]
    assert (verdict.outcome, broken.expectation, broken.broken) == ("failed", "expect_next_run_to_begin", 1)
    [row] = broken.sample
    assert f"The source folder '{pipeline.source}' does not exist." in row["refusal"]
    pipeline.source.with_name("away").rename(pipeline.source)
    assert judged(pipeline).passed


def test_command_names_the_refusal_first(make, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.source)
    ended = command(pipeline, tmp_path, "check")
    assert ended.exit_code == 1
    named, *further = ended.stdout.splitlines()
    assert named == "t: next_run failed"
    assert "does not exist. Create it, or correct source.path in the spec." in further[0]
