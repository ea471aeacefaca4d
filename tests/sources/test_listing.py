"""What a run reads of a folder, and what it refuses."""

import os
import random

import pytest

from ebbtide.errors import FileChangedError, LateFileError, SourceReadError
from ebbtide.sources import PATTERNS, FileSource
from ebbtide.sources._listing import discover
from ebbtide.storage import Location, Usage

NOW_MS = 2_000_000_000_000
YOUNG_S = NOW_MS // 1000


def add(folder, *names, content=b"12345", age_s=60):
    """Write files as if `age_s` seconds before `NOW_MS`."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written_s = NOW_MS / 1000 - age_s
        os.utime(path, (written_s, written_s))


def planned(folder, read=None, *, patterns=PATTERNS, in_order=False, min_age_ms=0, counts_repeats=False):
    how = {"in_order": in_order, "min_age_ms": min_age_ms, "counts_repeats": counts_repeats}
    return discover(str(folder), patterns, read or {}, now_ms=NOW_MS, **how)


def names(folder, read=None, **more):
    return [name for name, _ in planned(folder, read, **more).parts]


def test_files_that_a_writer_has_not_finished_are_not_read(tmp_path):
    good = ["a.json", "a.json.gz", "a.jsonl", "a.jsonl.gz", "a.ndjson", "a.ndjson.gz"]
    bad = ["a.json.tmp", "a.jsonl.part", "b.crdownload", "b.json~", "b.json.swp", "b", "b.txt", "b.parquet"]
    add(tmp_path, *good, *bad)
    found = planned(tmp_path)
    assert [name for name, _ in found.parts] == good
    assert (found.unmatched, found.nothing_matched) == (len(bad), None)


def test_hidden_files_and_what_is_in_hidden_folders_is_not_read(tmp_path):
    add(tmp_path, ".a.json", "_b.json", "_temporary/0/c.json", ".git/d.json", "e/_f.json", "e/g.json")
    assert names(tmp_path) == ["e/g.json"]
    assert planned(tmp_path).unmatched == 0


def test_folders_are_read_whatever_their_depth_in_the_order_of_whole_names(tmp_path):
    layout = [f"topics/orders/partition={p}/orders+{p}+{n:010d}.json" for p in (0, 1) for n in (0, 5, 10)]
    add(tmp_path, *reversed(layout))
    assert names(tmp_path) == layout


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.json", ["a.json", "x/b.json", "x/y/c.json"]),
        ("/*.json", ["a.json"]),
        ("x/*.json", ["x/b.json"]),
        ("*/y/?.json", ["x/y/c.json"]),
        ("[ab].*", ["a.json", "x/b.json"]),
        ("Xx/*.json", []),
    ],
)
def test_pattern_with_a_slash_is_for_the_whole_name(tmp_path, pattern, found):
    add(tmp_path, "a.json", "x/b.json", "x/y/c.json")
    assert names(tmp_path, patterns=[pattern]) == found


def test_folder_streams_where_it_has_something_new(tmp_path):
    add(tmp_path, "a.json")
    assert [planned(tmp_path, read).streams for read in ({}, {"a.json": 5})] == [True, False]


def test_each_file_is_known_by_its_size(tmp_path):
    add(tmp_path, "a.json", content=b"123")
    add(tmp_path, "b.json", content=b"")
    assert planned(tmp_path).parts == (("a.json", 3), ("b.json", 0))


@pytest.mark.parametrize("content", [b"123456789", b"1", b""], ids=["appended to", "cut", "emptied"])
@pytest.mark.parametrize("in_order", [False, True])
def test_file_that_changed_since_it_was_read_is_refused_by_name(tmp_path, content, in_order):
    add(tmp_path, "x/a.json", content=content)
    add(tmp_path, "x/b.json")
    with pytest.raises(
        FileChangedError, match=rf"Got: x/a\.json with {len(content)} bytes, read with 5\..*into new files.*refresh"
    ):
        planned(tmp_path, {"x/a.json": 5, "x/b.json": 5}, in_order=in_order)


def test_file_that_was_read_is_the_same_under_another_time_or_gone_or_of_unknown_size(tmp_path):
    add(tmp_path, "a.json", "b.json", age_s=0)
    assert names(tmp_path, {"a.json": 5, "b.json": None, "gone.json": 7}, in_order=True) == []


def test_new_file_under_a_smaller_name_is_read_by_sequence_and_refused_by_arrival(tmp_path):
    add(tmp_path, "1.json", "2.json", "3.json")
    assert names(tmp_path, {"1.json": 5, "3.json": 5}) == ["2.json"]
    with pytest.raises(LateFileError, match=r"below '3\.json'.*Got: 2\.json\. "):
        names(tmp_path, {"1.json": 5, "3.json": 5}, in_order=True)
    with pytest.raises(LateFileError, match=r"Got: 1\.json, 2\.json, 3\.json\. "):
        names(tmp_path, {"9.json": 5}, in_order=True)


def test_arrival_goes_by_the_names_of_each_folder_alone(tmp_path):
    read = {"p=0/1.json": 5, "p=1/7.json": 5}
    add(tmp_path, *read, "p=0/2.json", "p=1/8.json", "o/1.json", "0.json")
    assert names(tmp_path, read, in_order=True) == ["0.json", "o/1.json", "p=0/2.json", "p=1/8.json"]
    add(tmp_path, "p=1/3.json")
    with pytest.raises(LateFileError, match=r"below 'p=1/7\.json'.*Got: p=1/3\.json\. "):
        names(tmp_path, read, in_order=True)


def test_numbers_without_leading_zeros_are_refused_by_arrival_if_they_say_another_order_than_names(tmp_path):
    for folder, files in {"a": ["9", "10"], "b": ["o-0-99.json.gz", "o-0-100.json.gz", "o-0-101.json.gz"]}.items():
        add(tmp_path / folder, *(name if "." in name else f"{name}.json" for name in files))
        assert len(names(tmp_path / folder)) == len(files)
        with pytest.raises(LateFileError, match=r"leading zeros.*Got: .*1[0-9]+\.json.* before .*9\.json"):
            names(tmp_path / folder, in_order=True)


def test_numbers_before_the_last_one_order_nothing(tmp_path):
    # Partitions of a topic, whose offsets are padded; a later number of other digits.
    add(
        tmp_path,
        "o-10-0000.json",
        "o-10-0007.json",
        "o-9-0000.json",
        "x1-22.json",
        "x22-1.json",
        "y09.json",
        "y10.json",
    )
    assert len(names(tmp_path, in_order=True)) == 7


def test_file_that_was_read_and_moved_below_its_folder_is_refused_where_it_would_count_twice(tmp_path):
    read = {"a/1.json": 5, "a/2.json": 5, "3.json": None}
    add(tmp_path, "a/2.json", "a/done/1.json")
    assert names(tmp_path, read, in_order=True) == ["a/done/1.json"]
    with pytest.raises(FileChangedError) as raised:
        planned(tmp_path, read, in_order=True, counts_repeats=True)
    assert str(raised.value) == (
        f"In '{tmp_path}' files that were read are gone, and files with their names and sizes are in folders below. Records read"
        " twice would count twice. Got: a/done/1.json, read as a/1.json. Allowed: files that stay where they were read, or leave"
        " the source's folder. Move them back, out of the folder, or to one below whose name begins with '_', which is not"
        " read; give a file that is new another name; or run 'ebbtide refresh' to read everything again."
    )


def test_file_of_the_name_and_size_of_another_that_was_read_is_a_new_one_beside_it(tmp_path):
    """Of another partition or day, of another size, or where the one that was read is still there."""
    read = {"day=1/1.json": 5, "2.json": 4, "3.json": 5, "4.json": None, "5.json": 0}
    new = ["day=1x/1.json", "day=2/1.json", "done/2.json", "done/3.json", "done/4.json"]
    add(tmp_path, *new, "3.json")
    add(tmp_path, "done/5.json", content=b"")
    assert names(tmp_path, read, in_order=True, counts_repeats=True) == [*new, "done/5.json"]


def test_young_files_are_left_for_a_later_run_and_counted(tmp_path):
    add(tmp_path, "1.json", "x/1.json")
    add(tmp_path, "2.json", age_s=9)
    add(tmp_path, "3.json", age_s=10)
    by_sequence, by_arrival = (planned(tmp_path, in_order=order, min_age_ms=10_000) for order in (False, True))
    assert [name for name, _ in by_sequence.parts] == ["1.json", "3.json", "x/1.json"]
    assert [name for name, _ in by_arrival.parts] == ["1.json", "x/1.json"], "3.json would make 2.json come late"
    assert (by_sequence.young, by_arrival.young) == (1, 2)
    add(tmp_path, "4.json", age_s=-3600)
    assert names(tmp_path) == ["1.json", "2.json", "3.json", "4.json", "x/1.json"], "no minimum age, no question"


def test_nothing_matched_says_which_pattern_and_what_is_there_instead(tmp_path):
    add(tmp_path, *(f"{n}.tmp" for n in range(7)))
    said = planned(tmp_path, patterns=["*.json", "*.gz"]).nothing_matched
    assert "source.pattern (*.json, *.gz)" in said
    assert said == (
        f"No file in '{tmp_path}' or its folders matches source.pattern (*.json, *.gz); "
        "what does not match: 0.tmp, 1.tmp, 2.tmp, 3.tmp, 4.tmp and 2 more. "
        "Names that begin with '_' or '.' are never read."
    )
    for name, end in (("6.tmp", " and 1 more"), ("5.tmp", "")):
        (tmp_path / name).unlink()
        assert f"not match: 0.tmp, 1.tmp, 2.tmp, 3.tmp, 4.tmp{end}. " in planned(tmp_path).nothing_matched


def test_nothing_matched_is_told_from_nothing_new(tmp_path):
    assert "(*.x); it has no files. " in planned(tmp_path, patterns=["*.x"]).nothing_matched
    add(tmp_path, "a.json")
    assert planned(tmp_path, {"a.json": 5}).nothing_matched is None
    (tmp_path / "a.json").unlink()
    assert planned(tmp_path, {"a.json": 5}).nothing_matched is None, "all that was read was put away"
    add(tmp_path, "a.txt")
    assert planned(tmp_path, {"a.json": 5}).nothing_matched is not None, "the pattern was changed, or the names"


def test_folder_that_is_not_there_is_refused(tmp_path):
    add(tmp_path, "file.json")
    for path in ("no", "file.json"):
        with pytest.raises(SourceReadError, match=rf"{path}' does not exist\. Create it, or correct source.path"):
            planned(tmp_path / path)


def test_refusals_say_what_to_do(tmp_path):
    add(tmp_path, "1.json", "2.json")
    with pytest.raises(LateFileError) as late:
        planned(tmp_path, {"2.json": 5}, in_order=True)
    assert str(late.value) == (
        f"In '{tmp_path}' a file has appeared below '2.json', which was already read. Got: 1.json. "
        "Allowed: new files with greater names than those read from their folder, since order: arrival follows names. "
        "Rename it above '2.json', or run 'ebbtide refresh' to read everything again."
    )
    with pytest.raises(FileChangedError) as changed:
        planned(tmp_path, {"2.json": 4})
    assert str(changed.value) == (
        f"In '{tmp_path}' files have changed since they were read; added records would be lost. "
        "Got: 2.json with 5 bytes, read with 4. Allowed: files that do not change after they were read. "
        "Restore them and put added records into new files; by sequence, 'ebbtide run --accept-changed-files' reads them again; "
        "or run 'ebbtide refresh' to read everything again."
    )


def test_folder_that_cannot_be_listed_says_what_to_do(tmp_path):
    inner, long_name = os.open(tmp_path, os.O_RDONLY), "x" * 255
    for _ in range(17):  # deeper than a path may be long: it cannot be listed by its name
        os.mkdir(long_name, dir_fd=inner)
        outer, inner = inner, os.open(long_name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    with pytest.raises(SourceReadError) as refused:
        planned(tmp_path)
    start, end = f"The source folder '{tmp_path}' cannot be listed: ", ". Make it readable and run again."
    said = str(refused.value)
    assert (said[: len(start)], said[-len(end) :]) == (start, end)


def test_links_out_of_the_folder_are_refused_by_name_also_through_a_folder_of_them(tmp_path):
    add(tmp_path, "in/a.json", "out/secret.json")
    assert names(tmp_path / "in") == ["a.json"]
    (tmp_path / "in" / "b.json").symlink_to(tmp_path / "out" / "secret.json")
    (tmp_path / "in" / "c").symlink_to(tmp_path / "out")
    with pytest.raises(SourceReadError, match=r"symbolic links; they were not read. Got: b.json, c\."):
        names(tmp_path / "in")
    assert names(tmp_path / "in", patterns=["/a.json", "d/*.json"]) == ["a.json"]
    with pytest.raises(SourceReadError, match=r"they were not read. Got: c\."):
        names(tmp_path / "in", patterns=["/a.json", "c/*.json"])


def test_no_link_to_a_folder_is_entered_and_the_source_may_be_one(tmp_path):
    add(tmp_path, "in/a.json", "in/day=1/b.json")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    # Each link in a circle doubles the names at each depth: two of them have 2^40 names before the system gives up.
    for circle in ("in/a", "in/b", "in/day=1/c", "in/day=1/d"):
        (tmp_path / circle).symlink_to(tmp_path / "in")
    (tmp_path / "in" / "latest").symlink_to("day=1")
    (tmp_path / "in" / "broken").symlink_to("absent")
    (tmp_path / "in" / "itself").symlink_to("itself")
    found = ["a.json", "day=1/b.json"]
    assert names(tmp_path / "link") == names(tmp_path / "in") == found
    assert Location(tmp_path / "in").usage() == Usage(files=2, bytes=10)


@pytest.mark.parametrize("name", [b"caf\xe9.jsonl", b"caf\xe9/a.jsonl", b"a/\xff\xfe.json"])
def test_name_that_is_not_utf_8_is_refused_by_its_bytes(tmp_path, name):
    add(tmp_path, os.fsdecode(name))
    add(tmp_path, "b.jsonl")
    with pytest.raises(SourceReadError) as raised:
        planned(tmp_path)
    escaped = name.decode(errors="backslashreplace")
    assert f"names that are not UTF-8; nothing was read. Got: {escaped}. Allowed: names in UTF-8. Rename" in str(
        raised.value
    )


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"_caf\xe9.jsonl", b"_caf\xe9/a.jsonl"])
def test_name_that_is_not_utf_8_of_a_file_that_is_not_read_hinders_nothing(tmp_path, name):
    add(tmp_path, os.fsdecode(name))
    assert planned(tmp_path).parts == ()
    add(tmp_path, "b.jsonl")
    assert names(tmp_path) == ["b.jsonl"]


def grown(folder, rng, number):
    """Change a folder: new files, some in folders, some that match nothing or are young; files that are gone."""
    for i in range(rng.choice([0, 0, 1, 3])):
        place = folder / rng.choice(["", "", "a", "a/b"])
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{number:03}-{i}.{rng.choice(['json', 'json', 'txt'])}"
        file.write_text("x" * rng.randrange(3))
        os.utime(file, (YOUNG_S if rng.random() < 0.2 else 1, 1))
    gone = sorted(folder.rglob("*.json"))[1:]
    if gone and rng.random() < 0.2:
        rng.choice(gone).unlink()
    for at in (folder, *folder.rglob("*/")):
        if at.is_dir() and rng.random() < 0.9:  # else its change is too young to be trusted
            os.utime(at, (number, number))


@pytest.mark.parametrize("seed", range(12))
def test_looks_of_a_run_find_what_one_look_finds(tmp_path, seed):
    rng = random.Random(seed)
    how = {"in_order": rng.random() < 0.3, "counts_repeats": rng.random() < 0.3, "min_age_ms": rng.choice([0, 1000])}
    source, fresh = FileSource(str(tmp_path), **how), FileSource(str(tmp_path), **how)
    read = {}
    (tmp_path / "000.json").write_text("x")
    for number in range(1, 40):
        grown(tmp_path, rng, number)
        found = source.look(read, YOUNG_S * 1000)
        assert found == fresh.discover(read, YOUNG_S * 1000)
        if rng.random() < 0.7:
            read |= dict(found.parts)


def test_file_that_changed_is_refused_by_the_next_look_at_all_files(tmp_path):
    now = [1000.0]
    source = FileSource(str(tmp_path))
    source._seen.now_s = lambda: now[0]
    add(tmp_path, "1.json")
    read = dict(source.look({}, NOW_MS).parts)
    assert read == {"1.json": 5}
    assert not source.look(read, NOW_MS).parts
    add(tmp_path, "1.json", content=b"longer")
    now[0] += 20
    assert not source.look(read, NOW_MS).parts, "names that were seen are not asked about"
    now[0] += 20
    with pytest.raises(FileChangedError):
        source.look(read, NOW_MS)
