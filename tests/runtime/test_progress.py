"""What a run says of its steps."""

from ebbtide.runtime import StepProgress
from ebbtide.runtime._progress import StepClock, StepColumns

CLOCK = StepClock(5_000, 4_000, 300)
COLUMNS = StepColumns(["colour"], {"tier": "STRING"})
STEP = StepProgress("t", 2, "batch", 1, 3, 1, {"inserted": 2}, CLOCK, 0.5, COLUMNS, "the query has changed", 7)


def test_json_of_a_step_has_all_in_one_level():
    assert list(STEP.as_dict().items()) == [
        ("pipeline", "t"),
        ("step", 2),
        ("kind", "batch"),
        ("batch_id", 1),
        ("records", 3),
        ("quarantined", 1),
        ("metrics", {"inserted": 2}),
        ("now_ms", 5_000),
        ("watermark_ms", 4_000),
        ("held_ms", 300),
        ("seconds", 0.5),
        ("ignored_columns", ["colour"]),
        ("evolved", {"tier": "STRING"}),
        ("recomputed", "the query has changed"),
        ("other_tables", 7),
    ]


def test_line_of_a_step_has_what_is_not_usual():
    assert STEP.line() == (
        "t                batch  step 2    3 records, +2 ~0 -0, 1 quarantined, 7 of other tables, "
        "computed whole: the query has changed, clock held back 300 ms  (0.5 s)"
    )
