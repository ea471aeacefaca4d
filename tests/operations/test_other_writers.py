"""Other clients write the sink, by delta-rs or in any layout of Arrow: the pipeline goes on with what they left, and a repair takes it back."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from frame.limits import limits
from inputs.other_writers import THEIRS, begun, changed, step_three, values
from inputs.parquet_pages import compressed_by_lzo
from local.local_pipeline import LATER, Kept

from ebbtide.delta import Snapshot, Writer
from ebbtide.errors import RepairError, TableMismatchError, UnsupportedFileError
from ebbtide.model import RestoreAndApply


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    with limits():
        return Kept(begun(tmp_path_factory.mktemp("kept")))


def theirs_of(table, **new):
    """The rows with keys 3 and 5 as another client gives them back: one with other values, one under a new key; strings as polars has them."""
    columns = pa.schema(table.schema().to_arrow())
    query = QueryBuilder().register("t", table).execute("SELECT * FROM t WHERE id IN (3, 5) ORDER BY id")
    rows = pa.table(query.read_all()).cast(columns).to_pylist()
    given = pa.Table.from_pylist([{**rows[0], "v": THEIRS}, {**rows[1], **new}], columns)
    views = [field.with_type(pa.string_view()) if field.type == pa.string() else field for field in columns]
    return given.cast(pa.schema(views))


def merge(table):
    merging = table.merge(theirs_of(table, id=77), "t.id = s.id", source_alias="s", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


WRITES = {
    "update": lambda table: table.update(predicate="id = 3", new_values={"v": f"'{THEIRS}'"}),
    "update of all": lambda table: table.update(new_values={"v": f"'{THEIRS}'", "tags": f"make_array('{THEIRS}')"}),
    "delete": lambda table: table.delete("id = 3"),
    "delete of all": lambda table: table.delete(),
    "merge": merge,
    "append": lambda table: write_deltalake(table, theirs_of(table, id=77), mode="append"),
    "overwrite": lambda table: write_deltalake(table, theirs_of(table), mode="overwrite"),
    "compact": lambda table: table.optimize.compact(),
    "z_order": lambda table: table.optimize.z_order(["id"]),
}
CHANGES_NO_ROW = ("compact", "z_order")


@pytest.fixture(scope="module")
def right(kept):
    """The rows of a pipeline whose sink was left alone: after two steps, and after a third."""
    pipeline = kept.again()
    before = values(pipeline)
    step_three(pipeline)
    return before, values(pipeline)


@pytest.mark.parametrize("name", WRITES)
def test_pipeline_goes_on_after_a_write_of_delta_rs_and_a_repair_takes_it_back(kept, right, name):
    pipeline = kept.again()
    before, after = right
    WRITES[name](DeltaTable(pipeline.plan.sink.path))
    assert (values(pipeline) == before) is (name in CHANGES_NO_ROW)
    step_three(pipeline)
    shown = values(pipeline)
    assert [shown.get(id_) for id_ in (3, 7, 8)] == [after.get(id_) for id_ in (3, 7, 8)]
    report = pipeline.repair()
    assert bool(report["findings"]) is (name not in CHANGES_NO_ROW)
    assert values(pipeline) == after
    pipeline.read(*changed(4, 3))
    assert [row[1] for row in values(pipeline)[3]] == ["v4"]


def rewrite_file(pipeline, write):
    """Have another client rewrite a file of the sink; `write` gets its rows, and a path."""
    found = Snapshot.read(pipeline.plan.sink.path)
    [file, *_] = found.files.values()
    rows = pq.ParquetFile(file.location(found.table)).read()
    path = Path(found.table, "theirs.parquet")
    write(rows, path)
    add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 0}
    actions = [{"add": {**add, "dataChange": True}}, file.removed(0, data_change=True)]
    Writer().commit(found, actions, {"operation": "UPDATE"})


def large(of):
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(of, of)


def viewed(of):
    return {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}.get(of, of)


def categorical(of):
    return pa.dictionary(pa.uint32(), pa.large_string()) if of == pa.string() else of


LAYOUTS = {
    "polars": (viewed, pa.large_list),
    "pandas": (large, pa.list_),
    "categories": (categorical, pa.large_list),
    "views of lists": (viewed, pa.list_view),
    "large views of lists": (large, pa.large_list_view),
}
"""Layouts in which other libraries hand rows to a Parquet writer, which notes them in the file: of scalars, and of lists."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_pipeline_goes_on_over_a_file_in_the_layout_of_any_library(kept, right, name):
    scalar, list_of = LAYOUTS[name]

    def laid_out(of):
        if pa.types.is_struct(of):
            return pa.struct([field.with_type(laid_out(field.type)) for field in of])
        return list_of(scalar(of.value_type)) if pa.types.is_list(of) else scalar(of)

    def write(rows, path):
        columns = pa.schema([field.with_type(laid_out(field.type)) for field in rows.schema])
        theirs = [{**row, "v": THEIRS} if row["id"] == 9 else row for row in rows.to_pylist()]
        pq.write_table(pa.Table.from_pylist(theirs, columns), path)

    pipeline = kept.again()
    _, after = right
    rewrite_file(pipeline, write)
    step_three(pipeline)
    [[n, _, *rest]] = after[9]
    assert values(pipeline) == {**after, 9: [[n, THEIRS, *rest]]}
    pipeline.repair()
    assert values(pipeline) == after


def write_lists(rows, path):
    number = rows.column_names.index("v")
    lists = pa.array([["a"]] * len(rows))
    pq.write_table(rows.set_column(number, "v", lists), path)


def write_by_lzo(rows, path):
    pq.write_table(rows, path)
    compressed_by_lzo(path, "v")


MISFITS = {
    "does not fit the columns": (TableMismatchError, write_lists),
    "a fault of Ebbtide": (UnsupportedFileError, write_by_lzo),
}


@pytest.mark.parametrize("name", MISFITS)
def test_step_that_the_sink_cannot_take_ends_no_way_out(kept, right, name):
    error, write = MISFITS[name]
    pipeline = kept.again()
    _, after = right
    rewrite_file(pipeline, write)
    with pytest.raises(error, match=f"{name}.*'ebbtide repair' replaces it"):
        step_three(pipeline)
    assert pipeline.last.step == 3
    with pytest.raises(RepairError, match=r"step 3 is not in it yet.*Run 'ebbtide repair --apply'"):
        pipeline.act("acknowledge", reason="meant so")
    report = pipeline.repair()
    assert isinstance(pipeline.last.decision.tables["sink"], RestoreAndApply)
    assert "other clients changed rows: version" in report["findings"][0]["found"]
    assert values(pipeline) == after


@pytest.mark.parametrize("name", MISFITS)
def test_rewind_undoes_a_step_that_the_sink_cannot_take(kept, right, name):
    error, write = MISFITS[name]
    pipeline = kept.again()
    before, after = right
    rewrite_file(pipeline, write)
    with pytest.raises(error):
        step_three(pipeline)
    with pytest.raises(error):
        pipeline.act("rewind", to_step=3)
    pipeline.act("rewind", to_step=2)
    assert values(pipeline) == before
    pipeline.run(LATER)
    assert values(pipeline) == after
