"""Roots of earlier releases are opened, run on and maintained by this one.

`tests/data/format_N` has them as those releases left them. What an earlier release must refuse of this one: tests/runtime/test_newer.py.
"""

import json
import tarfile
from functools import partial
from pathlib import Path

import pytest
from local_pipeline import LocalPipeline, up

from ebbtide.delta import Log
from ebbtide.errors import StoredFormatError
from ebbtide.inspect import status
from ebbtide.model import StoredDocument
from ebbtide.tables import COLUMNS

KEPT = Path(__file__).parent.parent / "data"
ROOTS = ("format_2/batch_emitting", "format_2/rewind", "format_3/arrival", "format_3/sequence")
"""Those of format 2 were killed behind a decision; tests/ledger/test_upgrade.py finishes one of each kind."""
MORE = ("format_2/batch", "format_2/compaction", "format_2/quarantine_drop")
REFUSED = ("format_1/arrival", "format_1/sequence")
"""Format 1 never had a converter: its rows lack what a step decides by since. A refresh reads the source again."""


def kept_root(name):
    """Unpack a root here; return its pipeline, and what its release made of it."""
    expected = json.loads((KEPT / f"{name}.json").read_text())
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(filter="data")
    return LocalPipeline(Path(), **expected["fields"]), expected


@pytest.mark.parametrize("name", [*ROOTS, *(pytest.param(name, marks=pytest.mark.grid) for name in MORE)])
def test_root_of_an_earlier_release_goes_on(name, make, tmp_path, shell):
    shell.cd(tmp_path)
    pipeline, expected = kept_root(name)
    assert status(pipeline.spec, pipeline.root).last.step == expected["step"]
    pipeline.run()
    want = dict(expected["rows"])
    assert pipeline.rows() == want
    n_bad = len(pipeline.table("quarantine", COLUMNS))
    pipeline.read(up(9, 9), "{")
    for work in ("compaction", "cleanup", "undo"):
        pipeline.do(work)
    pipeline.read(up(9, 10))
    assert pipeline.rows() == want | {9: 10}
    assert len(pipeline.table("quarantine", COLUMNS)) == n_bad + 1
    for table in ("state", "sink", "quarantine"):
        _, newest = next(Log(pipeline.plan.at(table)).own_commits())
        assert newest[StoredDocument.FORMAT_KEY] == StoredDocument.FORMAT
    assert pipeline.is_idle()


@pytest.mark.parametrize("name", REFUSED)
def test_root_of_the_first_format_is_refused_until_a_refresh(name, tmp_path, shell):
    shell.cd(tmp_path)
    pipeline, expected = kept_root(name)
    before = pipeline.versions()
    assert sorted(map(list, pipeline.rows().items())) == expected["rows"]
    works = (
        pipeline.run,
        pipeline.repair,
        *(partial(pipeline.do, work) for work in ("compaction", "cleanup", "rewind")),
    )
    for work in works:
        with pytest.raises(StoredFormatError, match=r"older Ebbtide.*format 1.*'ebbtide refresh'"):
            work()
    assert pipeline.versions() == before
    pipeline.do("refresh")
    assert sorted(map(list, pipeline.rows().items())) == expected["rows"]
    assert len(pipeline.table("quarantine", COLUMNS)) == expected["quarantined"]
    pipeline.read(up(9, 9))
    pipeline.do("compaction")
    assert pipeline.rows()[9] == 9
    assert pipeline.is_idle()


def test_each_format_has_roots():
    formats = {int(name.partition("/")[0].removeprefix("format_")) for name in (*ROOTS, *REFUSED)}
    assert formats == set(range(1, StoredDocument.FORMAT + 1)), (
        "keep roots of the format before a new one: see docs/reference/stored-formats.md"
    )
