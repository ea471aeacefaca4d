"""Describes the finding of a failed expectation: the number of rows, the first rows, and their differing columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ebbtide.amounts import amount, named, shortened
from ebbtide.checks.great_expectations.verdict import Finding
from ebbtide.markdown import code
from ebbtide.redaction import MASK

MOST_NAMED = 3
"""Maximum rows in a sentence, and columns of each."""
MOST_LETTERS = 40
"""Maximum letters of a value in a table."""
DECIDED, SHOWN = "_decided", "_shown"
"""Columns of a sample that hold whole rows, as JSON: the decided one and the sink's."""
Row = Mapping[str, Any]

SENTENCES: Mapping[str, tuple[str, str]] = {
    "expect_next_run_to_begin": ("The next run is refused", ""),
    "expect_source_to_answer": ("The source could not be read", ""),
    "expect_commits_to_be_ours": (
        "1 commit was made by another client",
        "{n} commits were made by other clients",
    ),
    "expect_changes_to_rise_per_key": (
        "1 change of the sink does not follow the change of its key before it",
        "{n} changes of the sink do not follow the change of their key before them",
    ),
    "expect_sink_to_show_decisions": (
        "1 row of the sink is not the one that the state decided last",
        "{n} rows of the sink are not those that the state decided last",
    ),
    "expect_sink_to_be_complete": (
        "1 row of the sink differs from the state",
        "{n} rows of the sink differ from the state",
    ),
    "expect_keys_to_be_unique": (
        "1 key has several rows in the sink, or a null",
        "{n} keys have several rows in the sink, or a null",
    ),
    "expect_sequences_to_decide": (
        "1 key has two contents at one sequence",
        "{n} keys have two contents at one sequence",
    ),
    "expect_values_to_arrive": (
        "1 row shows null for a value that no change has sent yet",
        "{n} rows show null for a value that no change has sent yet",
    ),
    "expect_emitted_to_follow": (
        "1 record of the changelog cannot follow the one before it",
        "{n} records of the changelog cannot follow the one before them",
    ),
    "expect_retractions_to_find_their_rows": (
        "Retractions found no row to retract, in 1 step",
        "Retractions found no row to retract, in {n} steps",
    ),
    "expect_added_rows_to_be_new": (
        "Rows were added to keys that had an equal one, in 1 step",
        "Rows were added to keys that had an equal one, in {n} steps",
    ),
    "expect_newer_changes_to_win": (
        "Changes lost to rows with older event times, in 1 step",
        "Changes lost to rows with older event times, in {n} steps",
    ),
    "expect_creates_to_meet_no_row": (
        "Rows were created under keys that had a row, in 1 step",
        "Rows were created under keys that had a row, in {n} steps",
    ),
    "expect_entries_to_expire": (
        "1 entry of the state lives past its time to live",
        "{n} entries of the state live past their time to live",
    ),
    "expect_expired_entries_to_be_deleted": (
        "1 entry of the state has expired, and no cleanup has deleted it",
        "{n} entries of the state have expired, and no cleanup has deleted them",
    ),
    "expect_files_to_keep_no_expired_entry": (
        "1 data file of the state keeps entries that were deleted and had expired too long ago",
        "{n} data files of the state keep entries that were deleted and had expired too long ago",
    ),
    "expect_state_bytes_to_stay_below": (
        "The state has too many bytes",
        "The state has too many bytes",
    ),
    "expect_state_rows_to_stay_below": (
        "The state has too many rows",
        "The state has too many rows",
    ),
    "expect_quarantine_rate_to_stay_below": (
        "Too many records are bad, in 1 step",
        "Too many records are bad, in {n} steps",
    ),
    "expect_columns_to_be_known": (
        "The source has 1 column that the schema lacks",
        "The source has columns that the schema lacks, {n} in all steps",
    ),
    "expect_records_to_be_read": (
        "Records of the source were lost, in 1 step",
        "Records of the source were lost, in {n} steps",
    ),
    "expect_snapshot_to_show_all_rows": (
        "The source took a snapshot again, and 1 row of the sink was not in it",
        "The source took a snapshot again, and {n} rows of the sink were not in it",
    ),
    "expect_newest_event_to_be_recent": (
        "The newest event is too old",
        "The newest events are too old",
    ),
}
"""Expectation to its sentence for one row, and for several."""
WAYS_OUT: Mapping[str, str] = {
    "expect_sequences_to_decide": "Nothing in the changes says which content is right. Add a column to order.sequence that distinguishes them, then run "
    "'ebbtide refresh'. If the content that the sink shows will do: 'ebbtide acknowledge --reason TEXT'.",
    "expect_values_to_arrive": "The value comes with a change that was not read yet. If none brings it, have the connector send whole rows, or take a new "
    "snapshot. If null will do: 'ebbtide acknowledge --reason TEXT'.",
    "expect_retractions_to_find_their_rows": "A retraction must repeat its row. If some columns are computed again, set "
    "materializer.upsert_key; if updates send no -U, take order: upsert; then run 'ebbtide refresh'. If nothing is wrong: "
    "'ebbtide acknowledge --reason TEXT', or raise checks.max_unapplied_rate.",
    "expect_added_rows_to_be_new": "A record that is delivered again is not recognised: set format.position, or materializer.upsert_key; then run "
    "'ebbtide refresh'. If a key has equal rows: 'ebbtide acknowledge --reason TEXT', or raise checks.max_unapplied_rate.",
    "expect_emitted_to_follow": "Run 'ebbtide repair --apply', which appends lost records again. If another client wrote to the changelog: "
    "'ebbtide refresh', or 'ebbtide acknowledge --reason TEXT'.",
    "expect_expired_entries_to_be_deleted": "Run 'ebbtide cleanup'.",
    "expect_files_to_keep_no_expired_entry": "Run 'ebbtide cleanup'.",
    "expect_snapshot_to_show_all_rows": "Their deletes were lost, as with a replication slot. Run 'ebbtide repair --by-snapshot --apply' to delete "
    "them. If the snapshot was to show some rows only: 'ebbtide acknowledge --reason TEXT'.",
    "expect_newer_changes_to_win": "The source's log has probably begun again from lower positions. Run 'ebbtide rewind' to the step before, "
    "'ebbtide acknowledge --new-log TIME --reason TEXT' with the event time of the restart, and run again; or have its connector take a new "
    "snapshot into an empty topic or folder, and run 'ebbtide refresh'. If the changes are to lose: 'ebbtide acknowledge --reason TEXT', or raise "
    "checks.max_unapplied_rate.",
    "expect_creates_to_meet_no_row": "Deletes were skipped or come late; or tables of one key share a topic: add what distinguishes them to the key; or "
    "statements move rows onto each other's keys (SET id = id + 1): take order: arrival, with REPLICA IDENTITY FULL. Then run 'ebbtide refresh'. If "
    "the rows are right: 'ebbtide acknowledge --reason TEXT', or raise checks.max_unapplied_rate.",
}
"""Expectation to its remedy, if it differs from its check's."""


def _sentence(finding: Finding, shown: Callable[[str], str] = str) -> str:
    """Return a finding as a sentence that names the first rows.

    Args:
        finding: One that found something.
        shown: Formats the text of a row, which has values of records. Default: unchanged.

    Example:
        >>> rows = [{"id": 2, "_decided": '{"id": 2, "v": "b"}', "_shown": '{"id": 2, "v": "z"}'}]
        >>> _sentence(Finding("expect_sink_to_be_complete", None, "critical", 1, rows))
        "1 row of the sink differs from the state: id 2 (v is 'z' and must be 'b')."
    """
    one, many = SENTENCES.get(finding.expectation, ("", ""))
    if one:
        text = one if finding.broken == 1 else many.format(n=f"{finding.broken:,}")
    else:
        text = f"{amount(finding.broken, 'row')} {'breaks' if finding.broken == 1 else 'break'} the rule {finding.rule}"
    write = ROWS.get(finding.expectation, _plain_text)
    found = [write(row) for row in finding.sample]
    named_rows = [each for each in found if each]
    if not named_rows:
        return f"{text}."
    first = [shown(each) for each in named_rows[:MOST_NAMED]]
    n_more = finding.broken - len(first)
    more = f" and {n_more:,} more" if n_more > 0 else ""
    return f"{text}: {', '.join(first)}{more}."


def differing(row: Row) -> dict[str, tuple[str, str]]:
    """Return the columns that differ between a decided row and the sink's, with both values as JSON.

    Hidden values are masked on both sides. If nothing else differs, each of their columns may.

    Args:
        row: A row of a sample, with `_decided` and `_shown`; without both, nothing can differ.

    Example:
        >>> differing({"_decided": '{"id": 2, "v": "b"}', "_shown": '{"id": 2, "v": "z"}'})
        {'v': ('"b"', '"z"')}
    """
    decided, shown = _row_of(row, DECIDED), _row_of(row, SHOWN)
    if decided is None or shown is None:
        return {}
    found = {}
    masked = {}
    for name, value in decided.items():
        of_sink = shown.get(name)
        pair = (_as_json(value), _as_json(of_sink))
        if value != of_sink:
            found[name] = pair
        elif value == MASK:
            masked[name] = pair
    return found or masked


def _as_json(value: Any) -> str:
    """Write a value as JSON that people read."""
    return json.dumps(value, ensure_ascii=False)


def _row_of(row: Row, name: str) -> dict[str, Any] | None:
    """Return a whole row of a sample; None if there is none, or it is masked."""
    try:
        found = json.loads(row[name])
    except (KeyError, TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _plain_text(row: Row) -> str:
    """Name a row by its own columns; reserved ones do not identify it."""
    own = {name: value for name, value in row.items() if not name.startswith("_")}
    return ", ".join(f"{name} {value}" for name, value in own.items())


def _compared_text(row: Row) -> str:
    key = _plain_text(row)
    if row.get("_rows", 1) > 1:
        return f"{key} (there {row['_rows']} times)"
    if row.get(SHOWN) is None:
        return f"{key} (is missing)"
    if row.get(DECIDED) is None:
        return f"{key} (must not be there)"
    texts = [_difference_text(name, *pair) for name, pair in differing(row).items()]
    return f"{key} ({named(texts, MOST_NAMED)})" if texts else key


def _difference_text(name: str, decided: str, shown: str) -> str:
    if decided == shown:
        return f"{name} may differ, its values are personal"
    return f"{name} is {_literal(shown)} and must be {_literal(decided)}"


def _literal(text: str) -> str:
    value = json.loads(text)
    return repr(value) if isinstance(value, str) else text


def _commit_text(row: Row) -> str:
    return f"{row.get('table')} version {row.get('version')} ({row.get('operation')})"


def _changes_text(counted: str, row: Row) -> str:
    return f"{row.get(counted, 0):,} of {amount(row.get('changes', 0), 'change')} in step {row.get('step')}"


def _bad_records_text(row: Row) -> str:
    return f"{row.get('quarantined', 0):,} of {row.get('records', 0):,} in step {row.get('step')}"


def _column_text(row: Row) -> str:
    return f"{row.get('unknown_column')} in step {row.get('step')}"


def _loss_text(row: Row) -> str:
    return f"{row.get('lost')} in step {row.get('step')}"


def _kept_text(row: Row) -> str:
    return f"{row.get('_rows')} in {row.get('_file')}"


def _size_text(row: Row) -> str:
    n_rows = row.get("_rows")
    rows = "rows not counted" if n_rows is None else f"{n_rows} rows"
    return f"{row.get('_bytes')} bytes, {rows} in {row.get('_files')} files"


ROWS: Mapping[str, Callable[[Row], str]] = {
    "expect_commits_to_be_ours": _commit_text,
    "expect_sink_to_show_decisions": _compared_text,
    "expect_sink_to_be_complete": _compared_text,
    "expect_retractions_to_find_their_rows": partial(_changes_text, "unmatched"),
    "expect_added_rows_to_be_new": partial(_changes_text, "repeated"),
    "expect_newer_changes_to_win": partial(_changes_text, "superseded_newer"),
    "expect_creates_to_meet_no_row": partial(_changes_text, "created_over_rows"),
    "expect_quarantine_rate_to_stay_below": _bad_records_text,
    "expect_columns_to_be_known": _column_text,
    "expect_records_to_be_read": _loss_text,
    "expect_files_to_keep_no_expired_entry": _kept_text,
    "expect_state_bytes_to_stay_below": _size_text,
    "expect_state_rows_to_stay_below": _size_text,
}
"""Expectation to a function that names one of its rows; otherwise the row's columns name it."""


def _table_line(row: Row, name: str, pair: tuple[str, str]) -> str:
    values = [shortened(value, MOST_LETTERS) for value in pair]
    cells = [code(cell, in_table=True) for cell in (_plain_text(row), name, *values)]
    line = " | ".join(cells)
    return f"| {line} |"


@dataclass(frozen=True)
class Wording:
    """The findings of a check in words.

    Args:
        findings: Those that found something.
    """

    findings: Sequence[Finding]

    def sentences(self) -> list[str]:
        """Return a sentence for each, which names the first rows."""
        return [_sentence(finding) for finding in self.findings]

    def page(self) -> str:
        """Return a Markdown page: a sentence for each, and the differing columns as a table."""
        findings = self.findings
        lines = [f"- {_sentence(finding, code)}" for finding in findings]
        rows = [(row, differing(row)) for finding in findings for row in finding.sample]
        if any(differences for _, differences in rows):
            lines += ["", "| row | column | must be | is |", "|---|---|---|---|"]
            for row, differences in rows:
                lines += [_table_line(row, name, pair) for name, pair in differences.items()]
        return "\n".join(lines)

    @staticmethod
    def narrow(row: Row) -> dict[str, Any]:
        """Return a row of a sample for a table: of whole rows only the differing columns, of a struct a short text.

        Args:
            row: The row.

        Example:
            >>> Wording.narrow({"id": 2, "_decided": '{"id": 2, "v": "b"}', "_shown": '{"id": 2, "v": "z"}'})
            {'id': 2, 'differs': 'v', '_decided': 'v="b"', '_shown': 'v="z"'}
        """
        differences = differing(row)
        cells: dict[str, Any] = {}
        for name, value in row.items():
            if differences and name == DECIDED:
                cells["differs"] = ", ".join(differences)
            side = (DECIDED, SHOWN).index(name) if name in (DECIDED, SHOWN) else None
            if differences and side is not None:
                cells[name] = ", ".join(f"{column}={pair[side]}" for column, pair in differences.items())
            elif isinstance(value, Mapping):
                cells[name] = ", ".join(f"{part} {each}" for part, each in value.items())
            else:
                cells[name] = value
        return cells
