"""Whose table it is: another source is refused; and a refresh that works whatever was changed."""

import json

import pytest
from judging import verdict_of
from spark_support import LOCAL, change, plain_spec, sink, table, write
from store_support import stateful

from ebbtide.errors import SpecChangedError, StoredFormatError
from ebbtide.inspect.status import status
from ebbtide.runtime.driver import refresh, run
from ebbtide.runtime.plan import Plan
from ebbtide.spec.parts import FileSource, PlainFormat


@pytest.mark.grid
def test_other_source_under_the_same_name_is_refused_and_a_moved_one_confirmed(spark, tmp_path):
    root = str(tmp_path)
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    run(spark, spec, root)
    elsewhere = write(tmp_path / "elsewhere", [change("+I", 1, "a", 1)])
    kafka = FileSource(path=spec.source.path, topic="other")
    for changed in ({"source": kafka}, {"format": PlainFormat(type="plain", kind="op", position=["p", "n"])}):
        with pytest.raises(SpecChangedError, match=r"Is it another pipeline\? Then give it a name of its own"):
            run(spark, spec.model_copy(update=changed), root)
    moved = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(elsewhere)})})
    with pytest.raises(
        SpecChangedError, match=rf"Got: {elsewhere}. Allowed: {spec.source.path}. .*--accept-source-path"
    ):
        run(spark, moved, root)
    assert status(spec, root).step == 1, "nothing was made of it"
    [said] = run(spark, moved, root, accept_source_path=True).steps
    assert (said.kind, said.metrics) == ("tick", {}), "nothing new is there; where it is was written down"
    write(elsewhere, [change("+I", 2, "b", 2)], first=1)
    run(spark, moved, root)
    assert [row["id"] for row in sink(spark, tmp_path, spec)] == [1, 2]
    with pytest.raises(SpecChangedError, match="is not where it was"):
        run(spark, spec, root)


def make_older(path):
    """Make the stored facts those of a format from before states could be read, which had no checksums either."""
    for file in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            info = action.get("commitInfo", {})
            info.pop("ebbtideChecksum", None)
            if "userMetadata" in info:
                info["userMetadata"] = json.dumps(of_format_0(json.loads(info["userMetadata"])))
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def of_format_0(facts):
    """What every format has had of a step's facts."""
    made_by = {name: facts[name] for name in ("pipeline", "incarnation", "epoch", "step", "code")}
    stands = {"now_ms": facts["frontier"]["clock"]["now_ms"], "query_id": facts["source"]["query_id"]}
    return {"ebbtide": 0, **made_by, **stands, "state_version": facts["state"]["version"]}


def test_refresh_rebuilds_the_tables_whatever_was_changed(spark, tmp_path):
    root, source = str(tmp_path), tmp_path / "in"
    row = {"id": 1, "code": "7", "v": "a", "seq": 1}
    write(source, [json.dumps({"p": 0, "n": 1, "kind": "+I", "row": row}), "{"])
    every = {"emission": "every"}
    first = plain_spec(source, schema="id BIGINT, v STRING, seq INT", materializer=every, ttl="30d")
    run(LOCAL, first, root)
    assert len(table(spark, tmp_path, first, "changelog")) == 1

    other_key = plain_spec(source, schema="code STRING, v STRING, seq BIGINT", key=["code"], materializer=every)
    with pytest.raises(SpecChangedError, match="ebbtide refresh"):
        run(LOCAL, other_key, root)
    refresh(spark, other_key, root)
    assert sink(spark, tmp_path, other_key) == [{"code": "7", "v": "a", "seq": 1}]
    [emitted] = table(spark, tmp_path, other_key, "changelog")
    assert (emitted["code"], "id" in emitted) == ("7", False)

    by_sequence = plain_spec(source, schema="id INT, seq BIGINT", order={"sequence": ["seq"]})
    refresh(LOCAL, by_sequence, root)
    assert sink(spark, tmp_path, by_sequence) == [{"id": 1, "seq": 1}]
    assert table(spark, tmp_path, by_sequence, "changelog") == []

    of = {"path": str(source), "records": "value"}
    given = {"name": "plain", "source": of, "format": {"type": "plain"}, "schema": "v STRING, id INT", "key": ["v"]}
    function = stateful("ebbtide.functions:Deduplicate", **given)
    state = Plan.under(root, function).state.path
    make_older(tmp_path / "plain" / "state")
    with pytest.raises(StoredFormatError, match=r"written by an older Ebbtide\. Got: format 0\. .*ebbtide refresh"):
        run(LOCAL, function, root)
    refresh(spark, function, root)
    assert sink(spark, tmp_path, function) == [{"v": "a", "id": 1}]
    assert len(table(spark, tmp_path, function, "quarantine")) == 1
    fields = {f.name: f.nullable for f in spark.read.format("delta").load(f"{root}/plain/sink").schema}
    assert (fields["v"], fields["id"]) == (False, True)
    assert "`v`" in str(spark.sql(f"SHOW TBLPROPERTIES delta.`{state}`").collect())
    assert run(LOCAL, function, root).steps == []

    write(source, [json.dumps({"kind": "+I", "row": {"v": "b", "id": 2}})], first=1)
    run(LOCAL, function, root)
    min(source.iterdir()).unlink()
    refresh(LOCAL, function, root, accept_loss=True)
    assert sink(spark, tmp_path, function) == [{"v": "b", "id": 2}]
    assert not verdict_of(spark, Plan.under(root, function), "source_loss").passed
