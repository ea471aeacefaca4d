"""Savepoints from a disk to an object store, back, and within the store."""

import pytest
from local.local_pipeline import LocalPipeline, up

from ebbtide.errors import DamagedFileError
from ebbtide.storage import Location

FIELDS = {"order": "arrival", "materializer": {"emission": "every"}}


@pytest.mark.parametrize("kept_in_store", [False, True])
@pytest.mark.parametrize("from_store", [False, True])
def test_pipeline_starts_from_a_savepoint_of_another_store(root, tmp_path, from_store, kept_in_store):
    pipeline = LocalPipeline(tmp_path, **FIELDS)
    if from_store:
        pipeline.root = f"{root}/tables"
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"), "{")
    pipeline.read(up(1, 1, "-D"), up(3, 3, "+I"))
    kept = f"{root}/kept" if kept_in_store else str(tmp_path / "kept")
    done = pipeline.act("savepoint", to=kept)
    assert pipeline.act("savepoint", "show", to=kept)["files"] == done["files"]
    want = pipeline.rows()
    pipeline.read(up(4, 4, "+I"))
    for other in (f"{root}/fork", str(tmp_path / "fork")):
        fork = LocalPipeline(tmp_path, **FIELDS)
        fork.root = other
        fork.act("savepoint", "start", to=kept)
        assert (fork.rows(), fork.last.step) == (want, 2)
        assert fork.run().steps[0].step == 3
        assert fork.rows() == pipeline.rows()
    [file, *_] = [each.name for each in Location(f"{kept}/t/sink").walk() if each.name.endswith(".parquet")]
    damaged = Location(f"{kept}/t/sink/{file}")
    damaged.replace_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedFileError):
        pipeline.act("savepoint", "show", to=kept)
    pipeline.act("savepoint", "delete", to=kept)
    assert Location(f"{kept}/t").usage().files == 0
