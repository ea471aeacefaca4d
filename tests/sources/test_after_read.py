"""Files leave the source's folder once they are read: each is whole in one place at any time, and what a restored state has not read is found."""

import shutil
import signal

import pytest
from frame.limits import set_limits
from local.local_pipeline import LATER, up
from local.support import plain

from ebbtide.errors import SourceLostError
from ebbtide.inspect import status
from ebbtide.storage import Location

NOW = {"after": "0s"}
LEAVING = "ebbtide.sources._after_read"


@pytest.fixture
def pipeline(make, tmp_path):
    """A pipeline whose files move to an archive as soon as no step can be gone back to that has not read them."""
    set_limits(retention="interval 0 hours")
    made = make()
    leaving(made, move_to=str(tmp_path / "archive"))
    return made


def leaving(pipeline, **asked):
    pipeline.spec = pipeline.with_fields(source={"after_read": {**NOW, **asked}})


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("_")) if folder.is_dir() else []


def put(pipeline, number, *lines):
    """Add a file; it has its number as its name, whatever has left."""
    pipeline.source.mkdir(exist_ok=True)
    (pipeline.source / f"{number:04d}.jsonl").write_text("".join(line + "\n" for line in lines))


def read_three(pipeline):
    for number in (1, 2, 3):
        put(pipeline, number, up(number, number))
        pipeline.run()
        if number == 1:
            shutil.copytree(pipeline.home, pipeline.home.with_name("earlier"))


def restore(pipeline):
    shutil.rmtree(pipeline.home)
    shutil.copytree(pipeline.home.with_name("earlier"), pipeline.home)


def test_files_leave_behind_a_committed_step_and_runs_go_on(pipeline, tmp_path):
    read_three(pipeline)
    put(pipeline, 4, up(4, 4))
    plan = pipeline.act("vacuum", "dry_run")
    assert "3 files of the source, read by steps, to leave it by source.after_read." in plan.lines
    pipeline.act("vacuum")
    assert (names(pipeline.source), names(tmp_path / "archive")) == (
        ["0004.jsonl"],
        ["0001.jsonl", "0002.jsonl", "0003.jsonl"],
    )
    assert status(pipeline.spec, pipeline.root).next_run.waiting.backlog.files == 1
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3, 4: 4}
    assert pipeline.is_idle()


def test_bounded_vacuum_leaves_the_rest_to_the_next_one(pipeline, tmp_path):
    read_three(pipeline)
    pipeline.act("vacuum", max_files=2)
    assert names(tmp_path / "archive") == ["0001.jsonl", "0002.jsonl"]
    pipeline.act("vacuum", max_files=2)
    assert names(pipeline.source) == []


def test_file_stays_while_a_step_that_has_not_read_it_can_be_gone_back_to(pipeline):
    set_limits(retention="interval 7 days")
    read_three(pipeline)
    pipeline.act("vacuum")
    assert len(names(pipeline.source)) == 3
    pipeline.act("rewind", to_step=1)
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("order", ["sequence", "arrival"])
def test_restored_state_reads_the_archive_once(pipeline, tmp_path, order):
    if order == "arrival":
        pipeline.fields["order"] = "arrival"
        leaving(pipeline, move_to=str(tmp_path / "archive"))
    read_three(pipeline)
    pipeline.act("vacuum")
    assert names(pipeline.source) == []
    restore(pipeline)
    assert status(pipeline.spec, pipeline.root).next_run.waiting.backlog.files == 2
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
    assert pipeline.is_idle()


def test_refresh_reads_the_archive(pipeline):
    read_three(pipeline)
    pipeline.act("vacuum")
    assert names(pipeline.source) == []
    pipeline.do("refresh")
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}


def test_archive_that_is_gone_is_refused_by_name(pipeline, tmp_path):
    read_three(pipeline)
    pipeline.act("vacuum")
    (tmp_path / "archive").rename(tmp_path / "aside")
    pipeline.run()
    restore(pipeline)
    with pytest.raises(SourceLostError, match=r"no '0003\.jsonl', the last of them, there or in '.*/archive'"):
        pipeline.run()
    (tmp_path / "aside").rename(tmp_path / "archive")
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}


def test_deleted_files_that_a_restored_state_has_not_read_are_refused_by_name(pipeline):
    leaving(pipeline, delete=True)
    read_three(pipeline)
    pipeline.act("vacuum")
    assert names(pipeline.source) == []
    pipeline.run()
    restore(pipeline)
    found = status(pipeline.spec, pipeline.root)
    with pytest.raises(SourceLostError, match=r"no '0003\.jsonl', the last of them") as refused:
        pipeline.run()
    assert (found.level, found.misfit) == ("refused", str(refused.value))
    with pytest.raises(SourceLostError):
        pipeline.do("refresh")
    put(pipeline, 4, up(4, 4))
    pipeline.do("refresh", accept_loss=True)
    pipeline.run()
    assert pipeline.rows() == {4: 4}


def test_deleted_files_that_were_put_back_are_read(pipeline):
    leaving(pipeline, delete=True)
    read_three(pipeline)
    pipeline.act("vacuum")
    restore(pipeline)
    for number in (2, 3):
        put(pipeline, number, up(number, number))
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}


def test_file_that_has_grown_stays_and_is_refused(pipeline):
    read_three(pipeline)
    put(pipeline, 2, up(2, 2), up(9, 9))
    pipeline.act("vacuum")
    assert names(pipeline.source) == ["0002.jsonl"]
    assert "files have changed" in status(pipeline.spec, pipeline.root).misfit


KILLS = [
    (name, when, number)
    for name, numbers in (("move_to", (1, 2, 3)), ("replace_bytes", (1,)))
    for number in numbers
    for when in ("before", "after")
]


@pytest.mark.parametrize(("name", "when", "number"), KILLS)
def test_leaving_that_is_killed_is_finished_by_the_next(pipeline, tmp_path, killer, name, when, number):
    read_three(pipeline)
    spec = pipeline.spec.model_dump_json(by_alias=True)
    place = [f"ebbtide.storage:Location from {LEAVING}", name, when, number]
    done = killer.order(root=pipeline.root, place=place, works=[["sequence", "vacuum", spec, LATER, {}]])
    assert done["code"] == -signal.SIGKILL, done
    there = sorted([*names(pipeline.source), *names(tmp_path / "archive")])
    assert there == ["0001.jsonl", "0002.jsonl", "0003.jsonl"], "each is whole in one place"
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
    restore(pipeline)
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
    pipeline.act("vacuum")
    assert names(pipeline.source) == []


def test_file_is_moved_over_what_a_killed_process_has_copied(tmp_path):
    file, to = Location(tmp_path / "a.jsonl"), Location(tmp_path / "archive/a.jsonl")
    file.write_bytes(b"whole")
    to.replace_bytes(b"whole")
    file.move_to(to)
    assert (to.read_bytes(), file.exists()) == (b"whole", False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "either move_to or delete"),
        ({"move_to": "/a", "delete": True}, "either move_to or delete"),
        ({"move_to": "archive"}, "an absolute path"),
        ({"delete": True, "after": "31d"}, "up to 30d"),
        ({"move_to": "/in/archive"}, "neither in the source's nor above it"),
        ({"move_to": "/"}, "neither in the source's nor above it"),
    ],
)
def test_unusable_archive_is_refused(asked, said):
    with pytest.raises(ValueError, match=said):
        plain(source={"path": "/in", "after_read": asked})


def test_folder_of_several_topics_is_not_emptied():
    with pytest.raises(ValueError, match="files that one pipeline reads alone"):
        plain(source={"path": "/in", "topic": "t", "after_read": {"delete": True}})
