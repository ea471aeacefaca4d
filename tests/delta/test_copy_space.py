"""Who goes when copies take too much, and which copies are made at all."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from frame.circumstances import assume
from frame.stored_names import HASH, KEYS, POSITION

from ebbtide.delta import _copy_files as copy_files
from ebbtide.delta import _copy_space as copy_space
from ebbtide.delta._copy_space import Space

MAX_BYTES = 1_000_000
TENTH = MAX_BYTES // 10


def forget_copies():
    """Know as little as another process."""
    copy_space._seen_bytes.clear()
    copy_space._unseen_bytes.clear()


@pytest.fixture
def space(tmp_path):
    forget_copies()
    return Space(tmp_path / "copies", MAX_BYTES)


def write(space, name, n_bytes, age_s=0):
    """Write a copy of about so many bytes, last used so long ago."""
    n_rows = n_bytes // 20
    columns = {"n": np.arange(n_rows), HASH: np.arange(n_rows, dtype=np.uint64), POSITION: np.zeros(n_rows, np.uint32)}
    path = space.folder / name
    copy = space.write(path, pa.table(columns))
    if copy is not None and path.exists():
        os.utime(path, ns=((10**9 - age_s) * 10**9, path.stat().st_mtime_ns))
    return copy


def names(space):
    return {path.name for path in space.folder.iterdir()}


def test_copies_that_were_not_used_for_longest_go_and_those_without_rows_last(space):
    write(space, f"oldest{KEYS}", TENTH, age_s=100)
    for number in range(8):
        write(space, f"{number}.arrow", TENTH, age_s=50 - number)
    assert len(names(space)) == 9
    write(space, "new.arrow", TENTH)
    left = names(space)
    assert {f"oldest{KEYS}", "new.arrow"} <= left
    kept = sorted(int(name[0]) for name in left - {f"oldest{KEYS}", "new.arrow"})
    assert kept == list(range(8 - len(kept), 8)), "the oldest went"
    assert kept
    total_bytes = sum((space.folder / name).stat().st_size for name in left)
    assert 0.6 * MAX_BYTES < total_bytes <= 0.8 * MAX_BYTES


def test_copies_of_an_earlier_process_are_counted_with_the_first_one_written(space):
    for number in range(12):
        write(Space(space.folder, 10 * MAX_BYTES), f"{number}.arrow", TENTH, age_s=50)
    forget_copies()
    write(space, "new.arrow", 1000)
    assert len(names(space)) < 10


def test_copies_of_older_files_leave_room_to_spare_and_those_of_new_ones_need_not(space):
    for number in range(7):
        write(space, f"{number}.arrow", TENTH)
    assert space.admits(TENTH // 2)
    assert not space.admits(2 * TENTH)
    assert space.takes_new(TENTH // 3)
    assert not space.takes_new(2 * TENTH)


def test_small_copy_of_a_new_file_is_made_in_a_full_space(space):
    for number in range(9):
        write(space, f"{number}.arrow", TENTH)
    assert not space.admits(1)
    assert space.takes_new(TENTH // 3)


def test_copy_that_cannot_be_written_leaves_nothing(space, monkeypatch):
    def write_half(path, rows):
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(copy_files, "write", write_half)
    assert write(space, "a.arrow", TENTH) is None
    assert names(space) == set()


def test_nothing_is_written_into_a_folder_of_another_user(space):
    space.folder.mkdir()
    assume("a folder of another user")
    assert write(space, "a.arrow", TENTH) is None
    assert names(space) == set()


def test_older_copies_of_a_table_go_and_those_of_another_one_stay_with_their_generation(tmp_path):
    folder = tmp_path / "copies"
    one, another = map(copy_files.prefix_of, ("/one", "/another"))
    for table in ("/one", "/another"):
        copy_files.mark(folder, table, "1")
    for name in (f"{one}columns-file.arrow", f"{another}columns-file.arrow", "earlier-release.arrow"):
        (folder / name).touch()
    copy_files.drop_older(folder, "/one", "2")
    left = {path.name for path in folder.iterdir()}
    assert left == {f"{one}generation", f"{another}generation", f"{another}columns-file.arrow"}
    assert (folder / f"{one}generation").read_text() == "2"
