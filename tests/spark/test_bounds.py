"""What a stream of Spark's leaves beside the tables does not grow with its steps."""

import pytest
from clusters.spark_support import change, plain_spec, write

from ebbtide import run

pytestmark = pytest.mark.grid
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def test_as_many_files_are_beside_the_tables_after_more_steps(spark, tmp_path):
    source = write(tmp_path / "in", *([change("+I", number, "v", number)] for number in range(12)))
    spec = plain_spec(source, order={"sequence": ["seq"]})
    tables = {"state", "sink", "quarantine", "ledger"}
    sizes = {}

    def count(step):
        files = [path.relative_to(tmp_path / spec.name) for path in (tmp_path / spec.name).rglob("*") if path.is_file()]
        sizes[step.step] = len([path for path in files if path.parts[0] not in tables])

    spark.conf.set(RETAINED, 3)
    try:
        run(spark, spec, str(tmp_path), on_progress=count)
    finally:
        spark.conf.unset(RETAINED)
    assert len(sizes) == 12
    assert sizes[12] <= sizes[6], sizes
