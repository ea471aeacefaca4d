"""The hook that looks at a commit's subject takes an area and an imperative sentence of at most 72 letters."""

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parent.parent / ".ci" / "commit-msg"


def said(tmp_path, message):
    """What the hook says of a message; empty if it takes it."""
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    done = subprocess.run([sys.executable, HOOK, file], check=False, capture_output=True, text=True)
    assert (done.returncode == 0) == (not done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    "subject",
    [
        "ledger: store what a step does as actions",
        "operators, formats: break the circles",
        "state_table: pass files on",
        "sql: bring results to $PAGER",
        "a: " + "b" * 69,
        "Merge branch 'views'",
        "Revert 'sql: read'",
    ],
)
def test_subject_of_an_area_and_an_imperative_is_taken(tmp_path, subject):
    assert (
        said(
            tmp_path, f"{subject}\n\nThe body says why. It may be longer than the subject, and end with a full stop.\n"
        )
        == ""
    )


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("a: " + "b" * 70, "73 letters; allowed: 72"),
        ("A repair restores the sink", "no 'area: sentence'"),
        ("ledger: Store actions", "no 'area: sentence'"),
        ("ledger: stores actions", "'stores' is no imperative"),
        ("ledger: stored actions", "'stored' is no imperative"),
        ("ledger: storing actions", "'storing' is no imperative"),
        ("ledger: store actions.", "a full stop"),
        ("", "no 'area: sentence'"),
    ],
)
def test_other_subject_is_refused_with_what_is_wrong(tmp_path, subject, fault):
    assert fault in said(tmp_path, subject + "\n")
