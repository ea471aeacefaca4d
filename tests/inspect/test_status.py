"""Where a pipeline stands, by its tables' logs."""

import shutil

from local_pipeline import up

from ebbtide.inspect.status import status


def test_sink_is_told_with_its_version_and_its_rows(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 3, "-D"))
    found = status(pipeline.spec, pipeline.root)
    assert (found.step, found.records, found.sink_rows) == (2, 3, 1)
    assert (found.sink_version, found.state_version) == (pipeline.versions()["sink"], pipeline.versions()["state"])
    assert f"version {found.sink_version}, 1 row, changed last by step 2" in found.text()


def test_sink_that_is_gone_has_neither(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.home / "sink")
    found = status(pipeline.spec, pipeline.root)
    assert (found.sink_version, found.sink_rows) == (None, None)
    assert "sink is gone: 'ebbtide repair'" in found.text()
