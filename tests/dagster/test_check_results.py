"""A red check in Dagster: in words, with the command and the job that mend it."""

import dagster as dg

from ebbtide.checks import Finding, Verdict, VersionRange
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.dagster.check_results import to_check_result

KEY = dg.AssetCheckKey(dg.AssetKey("orders"), "foreign_writes")
WINDOW = VersionRange(4, 6, 3, 5, "one")
ROW = {"table": "sink", "version": 5, "operation": "UPDATE"}
REPAIR = {check.name: check.repair for check in CHECKS}


def result(*findings):
    return to_check_result(KEY, Verdict(list(findings)), WINDOW, REPAIR["foreign_writes"])


def test_red_check_says_what_is_wrong_and_names_the_command_and_the_job_that_mend_it():
    red = result(Finding("expect_commits_to_be_ours", None, "critical", 1, [ROW]))
    assert not red.passed
    assert red.description.startswith(
        "1 commit was made by another client: sink version 5 (UPDATE). Run 'ebbtide repair"
    )
    mending = red.metadata["repair"].value
    assert "`ebbtide repair --apply`" in mending
    assert "launch `ebbtide_repair` or `ebbtide_acknowledge` with the partition `orders`." in mending
    assert red.metadata["found"].value == "- 1 commit was made by another client: `sink version 5 (UPDATE)`."
    assert red.metadata["broken_rows"].value == 1


def test_green_check_has_neither_words_nor_a_repair():
    green = result(Finding("expect_commits_to_be_ours", None, "critical", 0, []))
    assert (green.passed, green.description) == (True, "")
    assert not {"found", "repair"} & green.metadata.keys()


def test_long_value_is_cut_in_the_table():
    row = {**ROW, "operation": "x" * 81, "table": "x" * 80, "version": None}
    red = result(Finding("expect_commits_to_be_ours", None, "critical", 1, [row]))
    [table] = [value for value in red.metadata.values() if isinstance(value, dg.TableMetadataValue)]
    assert table.records[0].data == {"operation": "x" * 80 + "...", "table": "x" * 80, "version": ""}
