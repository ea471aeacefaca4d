"""Syncs of a small step; and throw-away roots: with `EBBTIDE_FSYNC=off` nothing is synced, and after another start of the machine they are refused."""

import logging
import os
from pathlib import Path

import pytest
from frame.circumstances import assume
from local.local_pipeline import up

from ebbtide.errors import ConfigError, DamagedFileError
from ebbtide.ledger import _settling as settling


@pytest.fixture
def synced(monkeypatch):
    """Paths that were synced."""
    paths = []
    fsync = os.fsync

    def noted(handle):
        paths.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


@pytest.fixture
def off(shell):
    shell.export(EBBTIDE_FSYNC="off")
    settling._warn.cache_clear()


def test_small_step_syncs_of_each_table_a_file_its_folder_and_a_commit(make, synced):
    pipeline = make()
    for number in range(3):
        pipeline.put(up(number, 1))
    marks = []
    pipeline.run(on_progress=lambda _: marks.append(len(synced)))
    step = [Path(path).relative_to(pipeline.home) for path in synced[marks[-2] : marks[-1]]]
    of_table = [("", ""), ("", ".parquet"), ("_delta_log", ""), ("_delta_log", ".tmp")]
    found = [(path.parts[0], "_delta_log" if "_delta_log" in path.parts else "", path.suffix) for path in step]
    assert sorted(found) == [(table, *what) for table in ("sink", "state") for what in of_table]


def test_nothing_but_the_mark_is_synced(make, synced, off, caplog):
    pipeline = make()
    with caplog.at_level(logging.WARNING):
        pipeline.read(up(1, 1), "{")
        pipeline.do("compaction")
    home = pipeline.home
    assert synced == [str(home / "unsynced"), str(home), pipeline.root]
    assert pipeline.rows() == {1: 1}
    # A thread of an earlier test, as one that exports spans, may also have something to say.
    [message] = [record.getMessage() for record in caplog.records if record.name == "ebbtide.ledger._settling"]
    assert message == (
        f"EBBTIDE_FSYNC=off: a power cut or a crash of this machine may lose or damage the tables at '{home}'."
    )


def test_root_that_was_not_synced_is_refused_after_another_start(make, off, shell):
    pipeline = make()
    pipeline.read(up(1, 1))
    assume("another boot")
    for value in ("off", "on"):
        shell.export(EBBTIDE_FSYNC=value)
        with pytest.raises(DamagedFileError) as raised:
            pipeline.read(up(1, 2))
    home = pipeline.home
    assert str(raised.value) == (
        f"The tables at '{home}' were written with EBBTIDE_FSYNC=off, and this machine has started again since: files may be lost or torn."
        " Allowed: the boot in which they were written. Delete the folder, or run 'ebbtide refresh'."
        f" Only if the machine was shut down in order, delete '{home}/unsynced' and run again."
    )
    pipeline.do("refresh")
    assert pipeline.rows() == {1: 2}
    assert not (home / "unsynced").exists()


def test_refresh_of_a_root_that_is_not_synced_notes_the_new_boot(make, off):
    pipeline = make()
    pipeline.read(up(1, 1))
    assume("another boot")
    pipeline.do("refresh")
    assert (pipeline.home / "unsynced").read_text() == "another"


def test_run_that_syncs_writes_all_to_disk_before_it_forgets(make, off, monkeypatch, shell):
    pipeline = make()
    pipeline.read(up(1, 1))
    shell.unset("EBBTIDE_FSYNC")
    mark = pipeline.home / "unsynced"
    at_sync = []
    monkeypatch.setattr(os, "sync", lambda: at_sync.append(mark.exists()))
    pipeline.read(up(1, 2))
    assert (at_sync, mark.exists()) == ([True], False)
    assume("another boot")
    pipeline.read(up(1, 3))
    assert pipeline.rows() == {1: 3}


def test_system_without_boots_and_other_values_are_refused(make, off, monkeypatch, shell):
    pipeline = make()
    monkeypatch.setattr(settling, "boot", lambda: "")
    with pytest.raises(ConfigError, match=r"needs a system that names its boots\. Got: no /proc/"):
        pipeline.read(up(1, 1))
    shell.export(EBBTIDE_FSYNC="no")
    with pytest.raises(ConfigError, match=r"EBBTIDE_FSYNC is not usable\. Got: 'no'\. Allowed: on, off\."):
        pipeline.run()


def test_store_is_said_to_need_no_syncs(off, caplog):
    with caplog.at_level(logging.WARNING):
        settling.settle("s3://bucket/shop")
    assert caplog.messages == [
        "EBBTIDE_FSYNC=off has no effect on 's3://bucket/shop': a store keeps what it has accepted."
    ]
