"""What results show where columns are personal."""

import pytest

from ebbtide.checks._judged import BOOKKEEPING
from ebbtide.checks.great_expectations.masking import masked_result

SHOWN = (BOOKKEEPING | {"id", "v", "at"}) - {"at"}
WHO = "planted@example.org"


def shown(found, type_="expect_own", **arguments):
    result = masked_result(type_, arguments, found, SHOWN)
    assert WHO not in repr(result)
    return result


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ({"id": 1, "email": WHO}, {"id": 1, "email": "***"}),
        ({"id": 1, "email": None}, {"id": 1, "email": None}),
        ({"_changed_by": {"step": 1}, "_value_seen": WHO}, {"_changed_by": {"step": 1}, "_value_seen": "***"}),
        ({"_sequence": {"_lsn": 5, "email": WHO}}, {"_sequence": {"_lsn": 5, "email": "***"}}),
        ({"_decided": f'{{"id": 1, "email": "{WHO}"}}'}, {"_decided": '{"id": 1, "email": "***"}'}),
        ({"_shown": WHO, "_moved_from": [WHO]}, {"_shown": "***", "_moved_from": "***"}),
        ({"at": WHO, "version": 3}, {"at": "***", "version": 3}),
    ],
)
def test_sample_shows_bookkeeping_and_columns_that_are_not_personal(row, want):
    found = shown({"observed_value": 1, "details": {"sample": [row]}})
    assert found == {"observed_value": 1, "details": {"sample": [want]}}


@pytest.mark.parametrize(
    "arguments", [{"column": "email"}, {"column_A": "id", "column_B": "email"}, {"column_list": ["id", "email"]}, {}]
)
def test_rule_on_a_personal_column_or_on_none_keeps_its_counts_only(arguments):
    values = {
        "unexpected_count": 2,
        "unexpected_percent": 50.0,
        "partial_unexpected_list": [WHO],
        "unexpected_list": [WHO],
    }
    assert shown(values, **arguments) == {
        "unexpected_count": 2,
        "unexpected_percent": 50.0,
        "partial_unexpected_list": ["***"],
    }
    assert shown({"observed_value": WHO}, **arguments) == {"observed_value": "***"}
    query = {"observed_value": 3, "details": {"unexpected_rows": [{"e": WHO}]}}
    assert shown(query, **arguments) == {"observed_value": 3, "details": {"unexpected_rows": [{"row": "***"}]}}


def test_rule_on_other_columns_or_the_table_shows_what_it_found():
    found = {"unexpected_count": 1, "partial_unexpected_list": [-1]}
    assert shown(found, column="v") == found
    assert shown({"observed_value": 4}, "expect_table_row_count_to_be_between") == {"observed_value": 4}
