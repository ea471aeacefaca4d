"""Whose table it is: another source is refused; and a refresh that works whatever was changed."""

import pytest
from clusters.spark_support import change, plain_spec, sink, write

from ebbtide import run
from ebbtide.errors import SpecChangedError
from ebbtide.inspect import status
from ebbtide.spec._parts import PlainFormat


@pytest.mark.grid
def test_other_source_under_the_same_name_is_refused_and_a_moved_one_confirmed(spark, tmp_path):
    root = str(tmp_path)
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    run(spark, spec, root)
    elsewhere = write(tmp_path / "elsewhere", [change("+I", 1, "a", 1)])
    kafka = spec.source.model_copy(update={"topic": "other"})
    for changed in ({"source": kafka}, {"format": PlainFormat(type="plain", kind="op", position=["p", "n"])}):
        with pytest.raises(SpecChangedError, match=r"Is it another pipeline\? Then give it another name"):
            run(spark, spec.model_copy(update=changed), root)
    moved = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(elsewhere)})})
    with pytest.raises(
        SpecChangedError, match=rf"Got: {elsewhere}. Allowed: {spec.source.path}. .*--accept-source-path"
    ):
        run(spark, moved, root)
    assert status(spec, root).last.step == 1, "nothing was made of it"
    [said] = run(spark, moved, root, accept_source_path=True).steps
    assert (said.kind, said.metrics) == ("tick", {}), "nothing new is there; where it is was written down"
    write(elsewhere, [change("+I", 2, "b", 2)], first=1)
    run(spark, moved, root)
    assert [row["id"] for row in sink(spark, tmp_path, spec)] == [1, 2]
    with pytest.raises(SpecChangedError, match="is not where it was"):
        run(spark, spec, root)
