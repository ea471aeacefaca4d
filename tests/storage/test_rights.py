"""Folders are their owner's alone, or of the group that a root is shared with."""

import os
import stat

import pytest
from local.local_pipeline import LocalPipeline, up

from ebbtide.errors import DiskError
from ebbtide.storage import Location
from ebbtide.storage._disk import failures_named

OF_A_GROUP = 0o2775
FOR_THE_GROUP = stat.S_IRGRP | stat.S_IWGRP


@pytest.fixture
def umask():
    """Sets the umask of this process."""
    before = os.umask(0)
    os.umask(before)
    yield os.umask
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folder_is_private_for_any_umask_and_an_existing_one_unchanged(tmp_path, umask):
    (tmp_path / "there").mkdir(mode=0o755)
    umask(0)
    Location(str(tmp_path / "there" / "a" / "b")).make_private()
    assert mode_of(tmp_path / "there") & 0o055
    assert [mode_of(tmp_path / name) for name in ("there/a", "there/a/b")] == [0o700, 0o700]
    (tmp_path / "there" / "a").chmod(0o770)
    assert [Location(tmp_path / name).is_ours() for name in ("there/a", "there/a/b")] == [False, True]


@pytest.mark.parametrize(
    ("root", "home"), [(0o2775, 0o2770), (0o2770, 0o2770), (0o2755, 0o700), (0o775, 0o700), (None, 0o700)]
)
def test_folder_of_a_pipeline_is_shared_where_its_root_is(tmp_path, umask, root, home):
    if root is not None:
        (tmp_path / "root").mkdir()
        (tmp_path / "root").chmod(root)
    umask(0o077)
    Location(str(tmp_path / "root" / "t")).make_home()
    assert mode_of(tmp_path / "root" / "t") & ~stat.S_ISGID == home & ~stat.S_ISGID
    Location(str(tmp_path / "root" / "t")).make_home()


def test_group_of_a_shared_root_may_replace_all_that_is_in_it(tmp_path, umask):
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(OF_A_GROUP)
    umask(0o002)
    pipeline = LocalPipeline(tmp_path)
    for number in range(3):
        pipeline.read(up(1, number), up(number, number), "{")
    for work in ("compaction", "cleanup", "undo", "rewind"):
        pipeline.do(work)
    closed = [path for path in root.rglob("*") if path.stat().st_mode & FOR_THE_GROUP != FOR_THE_GROUP]
    assert closed == []
    pipeline.read(up(1, 9))
    assert pipeline.rows()[1] == 9


def test_file_without_a_right_is_named_with_the_user(tmp_path):
    with (
        pytest.raises(DiskError, match=rf"User {os.getuid()} has no right to '{tmp_path}'\. Got: .*Permission denied"),
        failures_named(tmp_path),
    ):
        raise PermissionError(13, "Permission denied")
