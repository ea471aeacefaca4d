"""Migration of transforms, as far as it needs no Spark: what changes, in words, and what it needs of the tables."""

import pyarrow as pa
import pytest
from local.local_pipeline import up
from local.support import spec
from plans import operator_of

from ebbtide.ledger import Cause
from ebbtide.operations._migration.transforms import KnownRecords, Unselected, WithoutSelected, with_stored_transform
from ebbtide.operators import Selected

SCHEMA = "id BIGINT NOT NULL, n INT, email STRING"
SELECTED = {"schema": "id BIGINT, n INT", "select": {"id": "id", "n": "n"}, "key": ["id"]}
OTHER = {
    "schema": "id BIGINT, m INT",
    "select": {"id": "id", "m": "least(n, 0)"},
    "where": "n > 1",
    "key": ["id"],
}
CALLING = {**SELECTED, "select": {"id": "id", "n": "twice(n)"}, "functions": {"twice": "row_rules:twice"}}


@pytest.fixture
def changed(make):
    """A pipeline with a step that was made with a transform, and with another transform since."""

    def changed(before, after):
        pipeline = make(schema=SCHEMA, transform=before)
        pipeline.plan.state.create()
        with pipeline.stepper() as stepper:
            stepper.commit(stepper.facts(Cause(what="cleanup"), stepper.next_clock(0)), [])
        pipeline.spec = pipeline.with_fields(transform=after)
        return pipeline

    return changed


@pytest.fixture
def told(changed):
    """What the plan of a migration says of the two transforms."""

    def told(before, after):
        lines = map(str.strip, changed(before, after).act("migrate", "plan").text().splitlines())
        return [line for line in lines if line.startswith("transform")]

    return told


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (None, None, []),
        (SELECTED, SELECTED, []),
        (None, SELECTED, ["transform: added"]),
        (SELECTED, None, ["transform: removed, the sink shows the rows unchanged"]),
        (
            SELECTED,
            OTHER,
            [
                "transform.select.m: None -> least(n, 0)",
                "transform.select.n: n -> None",
                "transform.where: None -> n > 1",
                "transform.schema: `id` BIGINT, `n` INT -> `id` BIGINT, `m` INT",
            ],
        ),
    ],
)
def test_change_of_a_transform_is_told_by_its_parts(told, before, after, words):
    assert told(before, after) == words


def test_function_that_a_transform_calls_is_told_with_what_tells_its_code_apart(told):
    call, added = told(SELECTED, CALLING)
    assert call == "transform.select.n: n -> twice(n)"
    assert added.startswith("transform.functions.twice: None -> ['row_rules:twice', ")


def test_function_that_a_transform_no_longer_calls_is_told_too(told):
    [*_, removed] = told(CALLING, SELECTED)
    assert removed.endswith("] -> None")


@pytest.mark.parametrize("before", [None, SELECTED, OTHER, CALLING])
@pytest.mark.parametrize("after", [None, SELECTED])
def test_transform_that_a_step_was_made_with_is_known_from_its_facts(changed, before, after):
    pipeline = changed(before, after)
    found = with_stored_transform(pipeline.spec, pipeline.last)
    assert found.identity == pipeline.with_fields(transform=before).identity


def test_entries_lose_what_was_selected_and_get_a_place_for_what_will_be():
    selects, plainly = operator_of(spec(SCHEMA, transform=SELECTED)), operator_of(spec(SCHEMA))
    assert set(Selected.COLUMNS) == set(selects.schema.names) - set(plainly.schema.names)
    entry = selects.schema.empty_table()
    kept = WithoutSelected(lambda entries, _: entries)(entry, selects)
    assert kept.schema.names == plainly.schema.names
    assert WithoutSelected(lambda entries, _: entries)(kept, plainly).schema == kept.schema
    one = pa.Table.from_pylist([{"id": 7, "n": 1}], plainly.schema)
    [row] = Unselected(lambda entries, _: entries, selects)(one, plainly).to_pylist()
    assert row.keys() == set(selects.schema.names)
    assert (row["id"], row["n"], {row[name] for name in Selected.COLUMNS}) == (7, 1, {None})


def test_record_of_a_row_that_failed_before_is_found_in_the_quarantine_by_its_order(make):
    pipeline = make()
    pipeline.read(up(1, 1), "{", "[")
    known = pipeline.plan.quarantine.values(*pipeline.plan.quarantine.schema.names)
    first, second = sorted(known.to_pylist(), key=lambda row: row["order"]["position"])
    orders = [tuple(row["order"].values()) for row in (first, second)]
    assert orders == [(1, 0, 1), (1, 0, 2)]
    found = KnownRecords(known)(orders)
    assert found == {orders[0]: (first["origin"], b"{"), orders[1]: (second["origin"], b"[")}
