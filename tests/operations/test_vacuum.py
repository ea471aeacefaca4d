"""A vacuum of so many files, and its plan, over the files that Delta's dry run lists."""

from pathlib import Path

from local.local_pipeline import LATER, up
from operating import operation_named

from ebbtide import InProcess
from ebbtide.operations import Context


class Listing(InProcess):
    """Stands for an executor whose Spark is asked for dry runs alone."""

    def spark(self):
        return self

    def sql(self, statement):
        assert statement.endswith(" DRY RUN")
        return Listed(statement.split("`")[1])


class Listed:
    """Files of a table that no version names, and a folder."""

    def __init__(self, table):
        self.table = table

    def collect(self):
        files = sorted(Path(self.table).glob("unnamed-*"))
        return [{"path": f"file:{path}"} for path in [*files, Path(self.table, "_change_data")]]


def unnamed(pipeline):
    return sorted(path.relative_to(pipeline.home).as_posix() for path in pipeline.home.glob("*/unnamed-*"))


def test_vacuum_of_so_many_files_deletes_them_and_says_what_is_left(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    for name in ("state/unnamed-1.parquet", "sink/unnamed-2.parquet", "sink/unnamed-3.parquet"):
        (pipeline.home / name).write_bytes(b"x")
    (pipeline.home / "sink" / "_change_data").mkdir(exist_ok=True)
    vacuum = operation_named("vacuum")
    ctx = Context(pipeline.spec, pipeline.root, Listing(), clock=lambda: LATER)
    planned = vacuum.act("dry_run", ctx, vacuum.Params())
    assert {each["path"].rpartition("/")[2] for each in planned["files"]} == {f"unnamed-{n}.parquet" for n in (1, 2, 3)}
    assert (planned["files_removed"], planned["bytes_removed"]) == (3, 3)
    assert len(unnamed(pipeline)) == 3
    bounded = vacuum.act("apply", ctx, vacuum.Params(max_files=2))
    assert unnamed(pipeline) == ["sink/unnamed-3.parquet"]
    assert bounded["files_left"] == 1
    assert bounded.text().endswith("1 file left, at least: the next run continues.")
    assert pipeline.rows() == {1: 1}
