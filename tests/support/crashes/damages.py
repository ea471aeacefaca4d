"""What becomes of a sink by other clients, disks and people with copies; each is done to a pipeline that runs without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from local.local_pipeline import LocalPipeline

from ebbtide.delta import DataFile, Log, Snapshot, Writer

Damage = Callable[[LocalPipeline], None]


def _sink(pipeline: LocalPipeline) -> tuple[Snapshot, pa.Table]:
    found = Snapshot.read(pipeline.plan.sink.path)
    assert found is not None
    return found, found.rows(pipeline.plan.sink.schema)


def _commit(pipeline: LocalPipeline, operation: str, rows: pa.Table | None, *, is_whole: bool) -> None:
    """Commit rows as another client does: in the place of all, or beside them."""
    found, _ = _sink(pipeline)
    adds = [] if rows is None else [DataFile.write(found.table, f"theirs-{found.version}.parquet", rows, bounded=())]
    goes = found.files.values() if is_whole else ()
    Writer().commit(found, DataFile.replacing(goes, adds), {"operation": operation})


def insert(pipeline: LocalPipeline) -> None:
    """A row of a key that nobody else has, and one of a key that is there."""
    _, rows = _sink(pipeline)
    first = rows.slice(0, 1).to_pylist()[0]
    _commit(pipeline, "WRITE", pa.Table.from_pylist([first, {**first, "id": 99}], rows.schema), is_whole=False)


def update(pipeline: LocalPipeline) -> None:
    """Another key in the place of each."""
    _, rows = _sink(pipeline)
    changed = [{**row, "id": row["id"] + 50} for row in rows.to_pylist()]
    _commit(pipeline, "UPDATE", pa.Table.from_pylist(changed, rows.schema), is_whole=True)


def delete(pipeline: LocalPipeline) -> None:
    """The rows of half the keys go."""
    _, rows = _sink(pipeline)
    _commit(pipeline, "DELETE", rows.slice(0, len(rows) // 2), is_whole=True)


def overwrite(pipeline: LocalPipeline) -> None:
    """No row stays."""
    _commit(pipeline, "WRITE", None, is_whole=True)


def restore(pipeline: LocalPipeline) -> None:
    """RESTORE TABLE, by another client, to what the first step left."""
    found, _ = _sink(pipeline)
    Writer().commit(found, found.restoring(1), {"operation": "RESTORE"})


def _files(pipeline: LocalPipeline) -> list[Path]:
    found, _ = _sink(pipeline)
    files: list[DataFile] = list(found.files.values())
    return [Path(file.location(found.table)) for file in files]


def lose_newest_file(pipeline: LocalPipeline) -> None:
    _files(pipeline)[-1].unlink()


def lose_all_files(pipeline: LocalPipeline) -> None:
    for file in _files(pipeline):
        file.unlink()


def tear_file(pipeline: LocalPipeline) -> None:
    *_, file = _files(pipeline)
    file.write_bytes(file.read_bytes()[:-30])


def zero_file(pipeline: LocalPipeline) -> None:
    *_, file = _files(pipeline)
    file.write_bytes(bytes(file.stat().st_size))


def drop(pipeline: LocalPipeline) -> None:
    shutil.rmtree(pipeline.home / "sink")


def tear_commit(pipeline: LocalPipeline) -> None:
    newest = max((pipeline.home / "sink" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])


def lose_commit(pipeline: LocalPipeline) -> None:
    first, *_ = sorted((pipeline.home / "sink" / "_delta_log").glob("*.json"))
    first.unlink()


def replace_table(pipeline: LocalPipeline) -> None:
    """Another table, of the same columns."""
    found, _ = _sink(pipeline)
    Writer().commit(found, [{"metaData": {**found.metadata, "id": "another"}}], {"operation": "REPLACE"})


def alters(table: str, **fields: Any) -> None:
    """Change the columns of a table as another client does: give some other fields in the log, or take them away."""
    snapshot = Snapshot.read(table)
    schema = json.loads(snapshot.metadata["schemaString"])
    known = {field["name"]: field for field in schema["fields"]}
    for name, change in fields.items():
        new = {"name": name, "type": "string", "nullable": True, "metadata": {}}
        known[name] = {**known.get(name, new), **change}
    schema["fields"] = [field for field in known.values() if field.get("type")]
    metadata = {**snapshot.metadata, "schemaString": json.dumps(schema)}
    Writer().commit(snapshot, [{"metaData": metadata}], {"operation": "ALTER TABLE"})


def put_earlier_back(pipeline: LocalPipeline, *names: str) -> None:
    """Put tables back to what they were when the folder `earlier` was copied from the pipeline's."""
    for name in names:
        shutil.rmtree(pipeline.home / name)
        shutil.copytree(pipeline.home.with_name("earlier") / name, pipeline.home / name)


def keep_copy(pipeline: LocalPipeline) -> None:
    """Copy the sink, to be put back."""
    shutil.copytree(pipeline.home / "sink", pipeline.home.with_name("copy"))


def put_back(pipeline: LocalPipeline) -> None:
    shutil.rmtree(pipeline.home / "sink")
    shutil.copytree(pipeline.home.with_name("copy"), pipeline.home / "sink")


FOREIGN: dict[str, Damage] = {
    "insert": insert,
    "update": update,
    "delete": delete,
    "overwrite": overwrite,
    "restore": restore,
}
"""What the pipeline goes on with."""
LOST: dict[str, Damage] = {
    "newest file lost": lose_newest_file,
    "all files lost": lose_all_files,
    "file torn": tear_file,
    "file zeroed": zero_file,
    "sink dropped": drop,
    "commit torn": tear_commit,
    "commit lost": lose_commit,
    "another table": replace_table,
    "put back": put_back,
}
"""What the next run refuses, or fails at."""


def lose_change_sets(pipeline: LocalPipeline) -> None:
    """Fold the state, and delete what no version of it needs but older steps', as VACUUM does."""
    pipeline.do("compaction")
    state = pipeline.plan.state.snapshot()
    kept = {file.location(state.table) for file in state.files.values()}
    for version, facts in pipeline.plan.state.steps():
        if facts.step > 1:
            for location in Log(state.table).added(version):
                if location not in kept:
                    Path(location).unlink(missing_ok=True)


def trim_state(pipeline: LocalPipeline) -> None:
    """Delete the commits of the state before the newest, as a cleanup of the log does."""
    from deltalake import DeltaTable

    state = pipeline.plan.state.path
    DeltaTable(state).create_checkpoint()
    for version in Log(state).versions()[:-1]:
        Path(Log(state).commit_file(version)).unlink()


def shown(pipeline: LocalPipeline) -> list[dict[str, Any]]:
    """The rows of the sink, the user's columns alone, in order."""
    _, rows = _sink(pipeline)
    return sorted(rows.select(pipeline.spec.sink_table.columns.names).to_pylist(), key=repr)
