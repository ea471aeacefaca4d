"""A restore of a pipeline's parts from copies of different moments ends right, or is refused by name with a way out that ends right."""

import shutil
import subprocess

import pytest
from crashes.ages import EVERY, PARTS, WITH_CHANGELOG, all_mixes, first, last, pairwise, refuse_wrong
from crashes.copies import LATE, MOMENTS, OTHER, CopiedPipeline
from local.local_pipeline import LATER, up

from ebbtide.errors import PausedError, TableMismatchError

pytestmark = pytest.mark.usefixtures("unsynced")


def test_mixes_of_copies_of_each_two_parts_end_right(make):
    refuse_wrong(CopiedPipeline(make()), PARTS, pairwise((LATE, OTHER), PARTS), first)


def test_table_of_a_copy_that_went_on_by_itself_is_refused_whatever_is_done(make):
    copied = CopiedPipeline(make())
    pipeline = copied.pipeline
    for part in ("sink", "quarantine"):
        copied.mix({**dict.fromkeys(PARTS, LATE), part: OTHER})
        before = pipeline.versions()
        for work in (pipeline.run, pipeline.repair, lambda: pipeline.do("compaction"), lambda: pipeline.do("undo")):
            with pytest.raises(TableMismatchError) as raised:
                work()
            assert str(raised.value) == (
                f"The table at '{pipeline.plan.at(part)}' is of another copy of 't' than its state. Got: another step 3 than the state's."
                " Allowed: tables that the steps of the state have written. Restore all folders of the pipeline from one copy;"
                " or run 'ebbtide refresh' to rebuild all tables from the source."
            )
        assert pipeline.versions() == before


def test_older_state_is_not_gone_back_to_beside_tables_of_another_copy(make):
    copied = CopiedPipeline(make())
    copied.mix({**dict.fromkeys(PARTS, LATE), "state": OTHER})
    with pytest.raises(TableMismatchError, match="is older than"):
        copied.pipeline.run()
    with pytest.raises(TableMismatchError, match=r"of another copy of 't' than its state\. Got: another step 3"):
        copied.pipeline.do("undo")


@pytest.mark.grid
@pytest.mark.parametrize("state", MOMENTS)
def test_all_mixes_of_copies_end_right(make, state):
    refuse_wrong(CopiedPipeline(make(**EVERY)), WITH_CHANGELOG, all_mixes(MOMENTS, WITH_CHANGELOG, state), last)


def test_copy_that_was_made_while_paused_is_restored_as_the_page_says(make, tmp_path):
    pipeline, backup = make(), tmp_path / "backup"
    pipeline.read(up(1, 1), "{")
    pipeline.act("pause", clock_ms=LATER, reason="backup")
    subprocess.run(["cp", "-a", str(pipeline.home), str(backup)], check=True)
    pipeline.act("resume", clock_ms=LATER)
    pipeline.read(up(1, 2), "[")
    shutil.rmtree(pipeline.home)
    subprocess.run(["cp", "-a", str(backup), str(pipeline.home)], check=True)
    with pytest.raises(PausedError):
        pipeline.run()
    pipeline.act("resume", clock_ms=LATER)
    pipeline.run()
    assert (pipeline.rows(), len(pipeline.table("quarantine", pipeline.plan.quarantine.schema))) == ({1: 2}, 2)
