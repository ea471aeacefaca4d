"""What a stream of Spark's leaves beside the tables does not grow with its steps."""

import pytest
from spark_support import change, plain_spec, write

from ebbtide import run
from ebbtide.runtime import Plan

pytestmark = pytest.mark.grid
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def test_checkpoint_has_as_many_files_after_more_steps(spark, tmp_path):
    source = write(tmp_path / "in", *([change("+I", number, "v", number)] for number in range(12)))
    spec = plain_spec(source, order={"sequence": ["seq"]})
    checkpoint = tmp_path / Plan.under(str(tmp_path), spec).checkpoint.path
    sizes = {}

    def count(step):
        sizes[step.step] = len([path for path in checkpoint.rglob("*") if path.is_file()])

    spark.conf.set(RETAINED, 3)
    try:
        run(spark, spec, str(tmp_path), on_progress=count)
    finally:
        spark.conf.unset(RETAINED)
    assert len(sizes) == 12
    assert sizes[12] <= sizes[6], sizes
