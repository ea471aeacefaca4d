"""Functions of a project in transforms on Spark: their code is a part of what the table is made by."""

import sys

import pytest
from clusters.spark_support import act, change, plain_spec, sink, write

from ebbtide import UpsertPipeline, run
from ebbtide.errors import SpecChangedError

TRANSFORM = {
    "schema": "id BIGINT NOT NULL, n BIGINT",
    "select": {"id": "id", "n": "score(v)"},
    "key": ["id"],
    "functions": {"score": "changing_rules:score"},
}


def spec_of(source, folder, code):
    """The spec, once the function's module has this code."""
    (folder / "changing_rules.py").write_text(code)
    sys.modules.pop("changing_rules", None)
    fields = plain_spec(source, order={"sequence": ["seq"]}).model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    return UpsertPipeline(**fields | {"transform": TRANSFORM})


@pytest.mark.grid
def test_changed_code_of_a_function_is_refused_and_migrated(spark, tmp_path, shell):
    shell.put_on_path(tmp_path)
    root = str(tmp_path)
    source = write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "bb", 2)])
    spec = spec_of(source, tmp_path, "def score(v: str) -> int:\n    return len(v)\n")
    run(spark, spec, root)
    assert [tuple(row.values()) for row in sink(spark, tmp_path, spec)] == [(1, 1), (2, 2)]

    other = spec_of(source, tmp_path, "def score(v: str) -> int:\n    return 100 if v == 'a' else 1 // (len(v) - 2)\n")
    with pytest.raises(SpecChangedError, match="ebbtide migrate"):
        run(spark, other, root)
    [words] = act(spark, other, root, "migrate", "plan")["changes"]
    assert words.startswith("transform.functions.score: ['changing_rules:score', ")
    act(spark, other, root, "migrate")
    assert [tuple(row.values()) for row in sink(spark, tmp_path, other)] == [(1, 100)]
    assert run(spark, other, root).steps == []
