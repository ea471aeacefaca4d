"""What a failed check says: in words, with the columns that differ."""

import pkgutil
import re
from importlib import import_module

import pytest
from servers.store_support import stateful

import ebbtide.checks
from ebbtide.checks import Finding, Wording, checks_of
from ebbtide.checks._rule import Rule
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.checks.great_expectations.wording import SENTENCES, WAYS_OUT
from ebbtide.cli import main

EARLIER = {"step": 1, "part": 0, "position": 0}
DIFFERS = {"id": 2, "_decided": '{"id":2,"v":"b","n":1}', "_shown": '{"id":2,"v":"z","n":1}', "_rows": 1}
COMMIT = {"table": "sink", "version": 5, "at": "2026-01-01T00:00:00.000Z", "operation": "UPDATE"}


def sentence_of(found):
    [sentence] = Wording([found]).sentences()
    return sentence


def finding(expectation, rows, broken=None, column=None):
    return Finding(expectation, column, "critical", broken or len(rows), rows)


def test_every_rule_of_ours_has_a_sentence_for_one_row_and_for_several():
    modules = [import_module(f"ebbtide.checks.{each.name}") for each in pkgutil.iter_modules(ebbtide.checks.__path__)]
    rules = {value.expectation for module in modules for value in vars(module).values() if isinstance(value, Rule)}
    assert rules == set(SENTENCES)
    for name in rules:
        assert sentence_of(finding(name, [{"id": 1}])) != sentence_of(finding(name, [{"id": 1}], broken=2))


@pytest.mark.parametrize(
    ("expectation", "rows", "broken", "said"),
    [
        (
            "expect_commits_to_be_ours",
            [COMMIT, {**COMMIT, "version": 6, "operation": "DELETE"}],
            2,
            "2 commits were made by other clients: sink version 5 (UPDATE), sink version 6 (DELETE).",
        ),
        (
            "expect_sink_to_be_complete",
            [DIFFERS],
            1,
            "1 row of the sink differs from the state: id 2 (v is 'z' and must be 'b').",
        ),
        (
            "expect_sink_to_be_complete",
            [
                {"id": 3, "_decided": '{"id":3}', "_rows": 0},
                {"id": 4, "_shown": '{"id":4}', "_rows": 1},
                {"id": 5, "_decided": '{"id":5}', "_shown": '{"id":5}', "_rows": 2},
            ],
            20,
            "20 rows of the sink differ from the state: id 3 (is missing), id 4 (must not be there), id 5 (there 2 times) and 17 more.",
        ),
        (
            "expect_quarantine_rate_to_stay_below",
            [{"step": 3, "records": 1000, "quarantined": 900}],
            1,
            "Too many records are bad, in 1 step: 900 of 1,000 in step 3.",
        ),
        (
            "expect_columns_to_be_known",
            [{"step": 3, "unknown_column": "tier"}],
            1,
            "The source has 1 column that the schema lacks: tier in step 3.",
        ),
        (
            "expect_records_to_be_read",
            [{"step": 3, "lost": "offsets 4 to 9 of partition 0"}],
            1,
            "Records of the source were lost, in 1 step: offsets 4 to 9 of partition 0 in step 3.",
        ),
        (
            "expect_files_to_keep_no_expired_entry",
            [{"_file": "a.parquet", "_rows": 1200}],
            1,
            "1 data file of the state keeps entries that were deleted and had expired too long ago: 1200 in a.parquet.",
        ),
        (
            "expect_state_bytes_to_stay_below",
            [{"_files": 2, "_bytes": 4096, "_rows": None}],
            1,
            "The state has too many bytes: 4096 bytes, rows not counted in 2 files.",
        ),
        (
            "expect_column_values_to_be_between",
            [{"qty": -1}],
            7,
            "7 rows break the rule expect_column_values_to_be_between qty: qty -1 and 6 more.",
        ),
    ],
)
def test_finding_says_what_is_wrong_and_names_the_first_rows(expectation, rows, broken, said):
    column = "qty" if "column_values" in expectation else None
    assert sentence_of(finding(expectation, rows, broken, column)) == said


def test_ways_out_are_commands_with_options_that_exist():
    """As they are typed: with the reason that an acknowledgement needs."""
    spec = stateful(
        "ebbtide.functions:Deduplicate", checks={"max_event_delay": "1h", "max_state_rows": 1}, event_time="at"
    )
    said = " ".join([*WAYS_OUT.values(), *(check.repair for check in (*CHECKS, *checks_of(spec)))])
    named = set(re.findall(r"'ebbtide ([^']+)'", said))
    assert len(named) > 8
    for text in named:
        command, *rest = text.split()
        known = main.get_command(None, command)
        options = {option for param in known.params for option in param.opts}
        assert {word for word in rest if word.startswith("--")} <= options, text
        assert command != "acknowledge" or "--reason" in rest, text


def test_page_lists_the_columns_that_differ_and_shortens_what_is_long():
    long = {**DIFFERS, "_shown": f'{{"id":2,"v":"{"z" * 100}","n":1}}'}
    text = Wording([finding("expect_sink_to_be_complete", [long])]).page()
    assert text.splitlines()[-1] == f'| `id 2` | `v` | `"b"` | `"{"z" * 39}...` |'
    assert max(map(len, text.splitlines()[1:])) < 100
    piped = {"id": 1, "_decided": '{"id":1,"v":"a|b"}', "_shown": '{"id":1,"v":null}'}
    page = Wording([finding("expect_sink_to_be_complete", [piped])]).page()
    assert page.endswith('| `id 1` | `v` | `"a\\|b"` | `null` |')
    assert "|" not in Wording([finding("expect_commits_to_be_ours", [COMMIT])]).page()


def test_table_shows_of_whole_rows_only_what_differs():
    assert Wording.narrow({**DIFFERS, "_changed_by": EARLIER}) == {
        "id": 2,
        "differs": "v",
        "_decided": 'v="b"',
        "_shown": 'v="z"',
        "_rows": 1,
        "_changed_by": "step 1, part 0, position 0",
    }
    letters = Wording.narrow({"id": 2, "_decided": '{"v":"Zoë"}', "_shown": '{"v":"李"}'})
    assert (letters["_decided"], letters["_shown"]) == ('v="Zoë"', 'v="李"')
    alone = {"id": 3, "_decided": '{"id":3}'}
    assert Wording.narrow(alone) == alone


def test_masked_values_are_never_called_different_but_may_be():
    row = {"id": 2, "_decided": '{"id": 2, "email": "***"}', "_shown": '{"id": 2, "email": "***"}'}
    assert "id 2 (email may differ, its values are personal)" in sentence_of(
        finding("expect_sink_to_be_complete", [row])
    )
    assert Wording.narrow({"_decided": "***", "_shown": "***"}) == {"_decided": "***", "_shown": "***"}
