"""A run on Spark goes on where a local one has stopped, and the other way round."""

import pytest
from spark_support import cut, forget_last_commit, same_as_truth, shop_lines, shop_spec, write

from ebbtide import local_session
from ebbtide.runtime.driver import run


@pytest.mark.parametrize("is_local_first", [True, False])
def test_engines_take_turns_and_finish_each_others_batches(spark, tmp_path, is_local_first):
    parts = cut(shop_lines("orders"), 6)
    source = tmp_path / "in"
    spec = shop_spec("orders", write(source, *parts[:2]))
    engines = [local_session(), spark] if is_local_first else [spark, local_session()]
    first = run(engines[0], spec, str(tmp_path))
    assert [step.kind for step in first.steps] == ["batch", "batch"]

    for number in range(2, 6):
        forget_last_commit(tmp_path, spec)  # as a run that was killed before its batch was noted
        write(source, parts[number], first=number)
        engines.reverse()
        summary = run(engines[0], spec, str(tmp_path))
        assert [step.kind for step in summary.steps] == ["replay", "batch"]
    assert same_as_truth(spark, tmp_path, spec)
