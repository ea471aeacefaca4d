"""A step is committed only on a state that no other run and no other client has changed; joining files changes none."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crashes.disk import DiskPipeline
from deltalake import DeltaTable
from frame.circumstances import assume
from frame.limits import set_limits
from frame.stored_names import DOMAIN, FOOTER
from local.support import change, plain

from ebbtide.delta import Commit, DataFile, Log, Snapshot, Writer
from ebbtide.entries import SinkChange, Step
from ebbtide.errors import (
    DamagedFileError,
    DeltaLogError,
    FilesMovedError,
    LeaseLostError,
    StoredFormatError,
    TableMismatchError,
)
from ebbtide.keyed_state import StateTtlConfig
from ebbtide.model import StoredDocument
from ebbtide.operators import ExpiryRules
from ebbtide.tables import StateTable
from ebbtide.tables._state.layout import rows_of

OF = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]})


@pytest.fixture
def disk(tmp_path, shell):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    set_limits(width=100)
    made = DiskPipeline(OF, tmp_path)
    for number in (1, 2):
        made.step([change("+U", id=number, n=number, at=number)], now_ms=0)
    return made


def newest(disk):
    return Snapshot.read(disk.plan.state.path)


def foreign(disk, actions, operation):
    """Commit to the state as another client."""
    return Writer().commit(newest(disk), actions, {"operation": operation})


def joined(disk):
    """Add each file again and remove it, as OPTIMIZE does: no row changes."""
    files = newest(disk).files.values()
    table = Path(disk.plan.state.path)
    adds = []
    for file in files:
        copy = f"joined-{file.path}"
        shutil.copy(table / file.path, table / copy)
        adds.append({"add": {**file.add, "path": copy, "dataChange": False}})
    return foreign(disk, DataFile.replacing(files, adds, data_change=False), "OPTIMIZE")


def deleted(disk):
    [file, *_] = newest(disk).files.values()
    return foreign(disk, [file.removed(0, data_change=True)], "DELETE")


def next_step(disk, actions=()):
    """Commit one more step on the version that the pipeline has read."""
    facts = disk.head.facts.model_copy(update={"step": disk.head.facts.step + 1})
    return disk.plan.state.perform(actions, facts, disk.snapshot)


def test_step_follows_a_commit_that_only_joins_files(disk):
    joined(disk)
    made = next_step(disk)
    assert made.version == newest(disk).version
    assert StateTable.newest_step(disk.plan.state.path) == disk.plan.state.last()
    assert StateTable.newest_step(disk.plan.state.path)[0] == made.version


def test_facts_are_kept_in_the_metadata_domain_with_their_version(disk):
    made = next_step(disk)
    kept = json.loads(newest(disk).domains[DOMAIN])
    assert kept["version"] == made.version
    assert kept["facts"]["step"] == disk.head.facts.step + 1


def test_step_is_refused_after_a_foreign_change_of_entries(disk):
    deleted(disk)
    with pytest.raises(TableMismatchError, match="version 3, DELETE"):
        next_step(disk)


def test_step_is_refused_after_one_of_another_run(disk):
    theirs = disk.head.facts.model_copy(update={"step": 7, "pipeline": "theirs"})
    Writer().commit_version(disk.plan.state.path, 3, [], {"operation": "WRITE", "userMetadata": theirs.to_json()})
    with pytest.raises(LeaseLostError, match="was committed by another run"):
        next_step(disk)


def test_step_that_was_committed_before_is_refused(disk):
    next_step(disk)
    disk.snapshot = newest(disk)
    with pytest.raises(LeaseLostError):
        next_step(disk)


def test_replacing_files_that_another_client_joined_is_refused(disk):
    [file, *_] = newest(disk).files.values()
    joined(disk)
    with pytest.raises(FilesMovedError, match="was removed by another client"):
        next_step(disk, [file.removed(0, data_change=False)])


def test_foreign_change_is_reported_until_the_rows_are_restored(disk):
    def since():
        return disk.plan.state.foreign_change(disk.snapshot.version, newest(disk))

    start = disk.snapshot.version
    assert since() == ("", [start])
    joined(disk)
    assert since() == ("", [start, start + 1])
    deleted(disk)
    assert since() == ("version 4, DELETE", [start, start + 1])
    foreign(disk, [], "SET TBLPROPERTIES")
    assert since() == ("version 4, DELETE", [start, start + 1]), "the later commit changes no rows"
    table = disk.plan.state.path
    now = newest(disk)
    before = Snapshot.read(table, start + 1)
    back = [{"add": {**file.add, "dataChange": True}} for id_, file in before.files.items() if id_ not in now.files]
    foreign(disk, back, "RESTORE")
    assert since() == ("", [start, start + 1, start + 4])


def test_rows_of_a_file_with_another_footer_are_refused(disk):
    [add] = Log(disk.plan.state.path).commit(disk.snapshot.version).adds()
    other = DataFile({**add, "tags": {FOOTER: "00000000"}})
    with pytest.raises(DamagedFileError, match="another footer"):
        rows_of(disk.plan.state.path, [other], "row", disk.plan.operator.schema)


def test_changes_of_a_step_are_not_read_from_a_replaced_file(disk):
    state = disk.plan.state
    [add] = Log(state.path).commit(disk.snapshot.version).adds()
    changes = state.changes(disk.snapshot.version)
    columns = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    assert changes.rows(columns).to_pylist() == [{"_change": SinkChange.INSERT, "id": 2, "n": 2}]
    assume("another process")
    assert changes.rows(columns).to_pylist() == [{"_change": SinkChange.INSERT, "id": 2, "n": 2}]
    location = Path(state.path, add["path"])
    rows = pq.read_table(location)
    pq.write_table(rows.set_column(rows.column_names.index("n"), "n", pa.array([3], pa.int32())), location)
    with pytest.raises(DamagedFileError, match="another footer"):
        changes.rows(columns)


@pytest.mark.parametrize(("entry", "n_rows"), [("row", 2), ("file", 0), ("acknowledged", 0)])
def test_rows_of_a_kind_are_found_by_statistics_and_without(disk, entry, n_rows):
    files = list(newest(disk).files.values())
    bare = [DataFile({**file.add, "stats": None}) for file in files]
    columns = disk.plan.operator.schema
    found = [len(rows_of(disk.plan.state.path, some, entry, columns)) for some in (files, bare)]
    assert found == [n_rows, n_rows]


STATS = {"numRecords": 3, "minValues": {"_stamp_ms": 100}, "nullCount": {"_stamp_ms": 0}}


def may_hold_expired(file, rules, now_ms):
    operator = SimpleNamespace(expiry=rules, schema=pa.schema([]))
    return StateTable("t", operator).may_hold_expired(file, Step(1, now_ms))


@pytest.mark.parametrize(
    ("stats", "now_ms", "may"),
    [
        (STATS, 149, False),
        (STATS, 150, True),
        ({"numRecords": 3, "nullCount": {"_stamp_ms": 3}}, 150, False),
        ({"numRecords": 3, "nullCount": {"_stamp_ms": 2}}, 150, True),
        ({"numRecords": 3}, 150, True),
        ({"nullCount": {"_stamp_ms": 3}}, 150, True),
        ({}, 150, True),
    ],
    ids=["alive", "expired", "no stamp", "a stamp", "rows alone", "nulls alone", "nothing"],
)
def test_file_may_hold_expired_entries_unless_statistics_exclude_it(stats, now_ms, may):
    rules = ExpiryRules({None: StateTtlConfig(ttl="50ms")})
    file = DataFile({"path": "x", "stats": json.dumps(stats)})
    assert may_hold_expired(file, rules, now_ms) is may


@pytest.mark.parametrize(("now_ms", "may"), [(149, False), (150, True), (300, True)])
def test_file_is_due_by_the_shortest_ttl(now_ms, may):
    file = DataFile({"path": "x", "stats": json.dumps(STATS)})
    for names in ([None, "short"], ["short", None], ["a", "short", "b"]):
        ttls = {name: StateTtlConfig(ttl="50ms" if name == "short" else "200ms") for name in names}
        assert may_hold_expired(file, ExpiryRules(ttls, ttl_selector="_state"), now_ms) is may, names


def test_absent_version_is_refused(disk):
    with pytest.raises(DeltaLogError, match="Version 9 of the state table"):
        disk.plan.state.snapshot(9)
    assert disk.plan.state.snapshot(1).version == 1


def test_facts_of_another_format_are_refused_and_end_the_steps(disk):
    state = disk.plan.state
    facts = json.loads(disk.head.facts.to_json())
    clock = {"now_ms": 0, "state_version": 2}
    older = {"ebbtide": 1, "pipeline": "t", "incarnation": "i", "epoch": 0, "code": "0", "step": 3, **clock}
    Writer().commit_version(state.path, 3, [], {"operation": "WRITE", "userMetadata": json.dumps(older)})
    with pytest.raises(StoredFormatError, match="Got: format 1"):
        state.last()
    assert state.last(older=True)[1].step == 3
    assert list(state.steps()) == []
    newer = {**facts, Commit.FORMAT: StoredDocument.FORMAT + 1}
    Writer().commit_version(state.path, 4, [], {"operation": "WRITE", "userMetadata": json.dumps(newer)})
    with pytest.raises(StoredFormatError):
        StateTable.newest_step(state.path)


def test_unknown_field_of_facts_is_refused(disk):
    unknown = {**json.loads(disk.head.facts.to_json()), "of_a_later_release": 1}
    Writer().commit_version(disk.plan.state.path, 3, [], {"operation": "WRITE", "userMetadata": json.dumps(unknown)})
    with pytest.raises(StoredFormatError, match="of_a_later_release"):
        StateTable.newest_step(disk.plan.state.path)


def test_facts_in_the_metadata_domain_are_read_or_refused_as_newer(disk):
    table = disk.plan.state.path
    version, facts = StateTable.newest_step(table)
    kept = json.loads(newest(disk).domains[DOMAIN])
    DeltaTable(table).create_checkpoint()
    for known in Log(table).versions():
        Path(Log(table).commit_file(known)).unlink()
    assert StateTable.newest_step(table) == (version, facts)
    kept["facts"][Commit.FORMAT] = StoredDocument.FORMAT + 1
    foreign(disk, [{"domainMetadata": {"domain": DOMAIN, "configuration": json.dumps(kept), "removed": False}}], "SET")
    with pytest.raises(StoredFormatError):
        StateTable.newest_step(table)


def test_restored_state_has_its_rows_again(disk):
    before = disk.snapshot
    deleted(disk)
    foreign(disk, newest(disk).restoring(before.version), "RESTORE")
    assert newest(disk).files.keys() == before.files.keys()
    assert disk.plan.state.foreign_change(before.version, newest(disk))[0] == ""
