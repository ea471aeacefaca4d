"""Full and read-only disks, torn and flipped bytes, lost files, a process that sleeps through its lease: each is named, nothing of it
is used, and once it is gone the run goes on to the tables of one that it never met."""

import re
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from frame.circumstances import assume
from frame.limits import set_limits
from frame.parts import MOUNTS, need
from frame.stored_names import HASH
from frame.thinned import thinned
from killing import PLACES
from local.local_run import HOUR, START, perform
from victims import refuse_fed_twice, spec_of, tables, write_source

from ebbtide.delta import Log, Snapshot, Writer
from ebbtide.errors import DamagedFileError, DeltaLogError, TableMismatchError
from ebbtide.runtime import Plan
from ebbtide.runtime import _reading as reading

pytestmark = pytest.mark.group("crashes")  # `made` makes each victim once
CLOCK = START + HOUR


class Victim:
    """A pipeline that has read all its files but the last."""

    def __init__(self, named, folder):
        kind, *unfolded = named.split()
        self.given = {"width": 100} if unfolded else {}
        self.folder = folder
        self.source = write_source(folder / "in", kind)
        self.root = folder / "root"
        self.spec = spec_of(kind, self.source, lease_ttl="1s")
        self.kind = kind
        self.last = self.source / "0002.jsonl"
        self.text = self.last.read_text()
        self.last.unlink()

    def run(self):
        perform("run", self.spec, str(self.root), CLOCK, self.given)

    def more(self):
        self.last.write_text(self.text)

    def order(self, **more):
        return {
            "root": str(self.root),
            "works": [[self.kind, "run", self.spec.model_dump_json(by_alias=True), CLOCK, {}]],
            **more,
        }

    def files(self, pattern):
        return sorted(path for path in (self.root / self.kind).glob(pattern) if path.is_file())

    def tables(self):
        refuse_fed_twice(Plan.under(str(self.root), self.spec))
        return tables(self.spec, self.root)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Victims by kind, and the tables that they are to have."""
    known = {}

    def find(kind):
        if kind not in known:
            victim = Victim(kind, tmp_path_factory.mktemp(kind))
            victim.run()
            shutil.copytree(victim.root, victim.folder / "two")
            victim.more()
            victim.run()
            known[kind] = victim, victim.tables()
            shutil.rmtree(victim.root)
        return known[kind]

    return find


@pytest.fixture
def again(made, tmp_path, shell):
    """The victim as it was before the last file came, which is there now, without local copies."""

    def find(kind):
        victim, want = made(kind)
        shutil.rmtree(victim.root, ignore_errors=True)
        shutil.copytree(victim.folder / "two", victim.root)
        shell.export(EBBTIDE_CACHE=tmp_path / "cache")
        assume("another process")
        return victim, want

    return find


def flip(data):
    """Flip a bit of every 37th byte: of a file a good part means nothing."""
    return bytes(byte ^ 4 if at % 37 == 20 else byte for at, byte in enumerate(data))


def cut(data):
    return data[: len(data) // 2]


def cut_at_a_line(data):
    return data[: data.index(b"\n") + 1]


def empty(data):
    return b""


def gone(data):
    return None


DAMAGES = [
    *[("sequence", "state/_delta_log/*2.json", how, DeltaLogError) for how in (flip, cut, cut_at_a_line, gone)],
    *[("sequence", "sink/_delta_log/*2.json", how, DeltaLogError) for how in (flip, cut, cut_at_a_line, empty, gone)],
    ("sequence", "sink/_delta_log/*3.json", empty, DeltaLogError),  # the newest
    *[("sequence", "ledger/_delta_log/*1.json", how, DeltaLogError) for how in (flip, cut, empty)],
    ("arrival", "changelog/_delta_log/*1.json", cut, DeltaLogError),
    ("sequence", "quarantine/_delta_log/*1.json", cut, DeltaLogError),
    *[("sequence", "sink/*.parquet", how, DamagedFileError) for how in (flip, gone)],
    *[("stateful", "state/*.parquet", how, DamagedFileError) for how in (flip, cut, gone)],
    *[("arrival unfolded", "sink/*.bin", how, DeltaLogError) for how in (flip, cut)],
    ("arrival unfolded", "sink/*.bin", gone, DamagedFileError),
    ("sequence", "quarantine/*.parquet", flip, DamagedFileError),
]


@pytest.mark.parametrize(
    ("kind", "pattern", "how", "error"), thinned(DAMAGES, 3), ids=lambda part: getattr(part, "__name__", part)
)
def test_damaged_file_is_named_and_the_run_goes_on_once_it_is_restored(again, kind, pattern, how, error):
    victim, want = again(kind)
    home = victim.root / victim.kind
    damaged = victim.files(pattern)
    assert damaged
    whole = {path: path.read_bytes() for path in damaged}
    for path, data in whole.items():
        left = how(data)
        path.unlink() if left is None else path.write_bytes(left)
    table = str(home / pattern.split("/")[0])
    versions = Log(table).versions()
    victim.more()
    with pytest.raises(error) as raised:
        victim.run()
    assert any(name in str(raised.value) for name in (table, *map(str, damaged)))
    is_appended_to = pattern.startswith("quarantine/")  # without a look at what is in it
    assert Log(table).versions() == versions or is_appended_to
    for path, data in whole.items():
        path.write_bytes(data)
    victim.run()
    assert victim.tables() == want


@pytest.mark.parametrize("how", [cut, empty], ids=lambda how: how.__name__)
def test_torn_checkpoint_of_the_log_is_read_past_or_named_if_its_commits_are_gone(again, how):
    victim, want = again("sequence")
    set_limits(checkpoint_interval=2)
    victim.more()
    victim.run()
    assert victim.tables() == want
    [*_, checkpoint] = victim.files("state/_delta_log/*.checkpoint.parquet")
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(how(whole))
    victim.run()
    assert victim.tables() == want
    first = checkpoint.with_name(f"{0:020d}.json")
    first.rename(first.with_suffix(".gone"))
    for older in victim.files("state/_delta_log/*.checkpoint.parquet"):
        older.write_bytes(how(older.read_bytes()))
    with pytest.raises(DamagedFileError, match=r"checkpoint\.parquet"):
        victim.run()
    checkpoint.write_bytes(whole)
    victim.run()
    assert victim.tables() == want


def flip_hashes(data):
    """Flip a bit of each stored hash, so that no key is found by it."""
    hashes = pa.ipc.open_file(pa.BufferReader(data)).read_all()[HASH]
    for value in hashes.to_pylist():
        data = data.replace(struct.pack("<Q", value), struct.pack("<Q", value ^ 4))
    return data


@pytest.mark.parametrize("how", thinned([flip_hashes, cut, empty, gone], 2), ids=lambda how: how.__name__)
def test_damaged_local_copy_is_made_again(again, tmp_path, how):
    victim, want = again("sequence")
    shutil.rmtree(victim.root)
    victim.last.unlink(missing_ok=True)
    victim.run()
    copies = list((tmp_path / "cache").glob("*.arrow"))
    assert copies
    for copy in copies:
        left = how(copy.read_bytes())
        copy.unlink()  # it is mapped: what is mapped must not change
        if left is not None:
            copy.write_bytes(left)
    assume("another process")
    victim.more()
    victim.run()
    assert victim.tables() == want


@pytest.mark.parametrize("how", [cut, empty, gone], ids=lambda how: how.__name__)
def test_damaged_staged_file_is_named_and_made_again_by_the_next_run(again, monkeypatch, how):
    set_limits(flush_bytes=1)  # else few changes stay in memory
    victim, want = again("arrival")
    victim.more()
    stage = reading.stage

    def damaging(*given):
        staged = stage(*given)
        [path] = victim.files("staged/*/*.arrow")
        left = how(path.read_bytes())
        path.unlink() if left is None else path.write_bytes(left)
        return staged

    with monkeypatch.context() as patch:
        patch.setattr(reading, "stage", damaging)
        with pytest.raises(DamagedFileError, match="staged"):
            victim.run()
    victim.run()
    assert victim.tables() == want


def test_newest_commit_of_the_sink_that_was_lost_is_made_again(again):
    victim, want = again("sequence")
    while Log(str(victim.root / "sequence/sink")).last_step() == 2:  # the step's, and the fold's that followed
        victim.files("sink/_delta_log/*.json")[-1].unlink()
    victim.more()
    victim.run()
    assert victim.tables() == want


def test_newest_commit_of_the_state_that_was_lost_is_refused(again):
    victim, _ = again("sequence")
    while Log(str(victim.root / "sequence/state")).last_step() == 2:
        victim.files("state/_delta_log/*.json")[-1].unlink()
    victim.more()
    with pytest.raises(TableMismatchError, match="is older than"):
        victim.run()


def test_commit_is_not_put_where_one_was_lost(again):
    victim, _ = again("sequence")
    table = str(victim.root / "sequence/sink")
    *_, lost, last = Log(table).versions()
    stale = Snapshot.read(table, lost - 1)
    Path(Log(table).commit_file(lost)).unlink()
    with pytest.raises(DeltaLogError, match=f"version {last} without version {lost}"):
        Writer().commit(stale, [], {"operation": "WRITE"})


@pytest.fixture
def in_namespace(killer):
    need(MOUNTS)
    return killer


@pytest.mark.parametrize("most_bytes", [512, 2_500, 4_000, 6_000])
def test_file_that_cannot_be_written_whole_leaves_no_torn_commit(again, killer, most_bytes):
    victim, want = again("sequence")
    victim.more()
    failed = killer.order(**victim.order(most_bytes=most_bytes))
    assert failed["code"] == 1
    assert "File too large" in failed["said"].splitlines()[0], failed["said"]
    done = killer.order(**victim.order())
    assert done["code"] == 0, done["said"]
    assert victim.tables() == want


@pytest.mark.parametrize("kilobytes", thinned([16, 64, 112, 176], 2))
def test_full_disk_leaves_what_the_next_run_finishes(made, in_namespace, tmp_path, kilobytes):
    victim, want = made("sequence")
    victim.more()
    mounted, copied = tmp_path / "disk", tmp_path / "copied"
    mounted.mkdir()
    order = victim.order(root=str(mounted / "root"))
    size = f"size={kilobytes}k"
    failed = in_namespace.order(**order, first=[["mount", "-t", "tmpfs", "-o", size, "none", str(mounted)]])
    assert failed["code"] == 1
    assert "No space left on device" in failed["said"].splitlines()[0], failed["said"]
    larger = ["mount", "-o", "remount,size=64m", str(mounted)]
    done = in_namespace.order(**order, first=[larger], then=[["cp", "-r", str(mounted / "root"), str(copied)]])
    assert done["code"] == 0, done["said"]
    assert tables(victim.spec, copied) == want


@pytest.mark.parametrize("name", thinned(["", "state", "sink", "quarantine", "ledger", "staged"], 2))
def test_read_only_folder_is_named_and_the_run_goes_on_when_it_is_writable(again, in_namespace, name):
    victim, want = again("sequence")
    victim.more()
    folder = victim.root / "sequence" / name
    folder.mkdir(exist_ok=True)
    bind = ["mount", "--bind", str(folder), str(folder)]
    read_only = ["mount", "-o", "remount,ro,bind", str(folder)]
    failed = in_namespace.order(**victim.order(first=[bind, read_only]))
    assert failed["code"] == 1
    words = f"Read-only file system|User 'root' may not write to '{folder}'"
    assert re.search(words, failed["said"].splitlines()[0]), failed["said"]
    done = in_namespace.order(**victim.order(first=[["umount", str(folder)]]))
    assert done["code"] == 0, done["said"]
    assert victim.tables() == want


ASLEEP = ("the entries are written", "the sink's rows are written", "the state is committed", "the sink is committed")


@pytest.mark.parametrize("place", thinned(ASLEEP, 2))
def test_process_that_was_stopped_across_a_take_over_stops_for_good(made, killer, tmp_path, place):
    victim, want = made("sequence")
    victim.more()
    order = victim.order(root=str(tmp_path))
    asleep = killer.order(**order, place=PLACES[place], signal="SIGSTOP", elsewhere=True)
    assert asleep["code"] is None, asleep
    done = killer.order(**order)
    assert done["code"] == 0, done["said"]
    at_take_over = tables(victim.spec, tmp_path)
    woken = killer.order(**{"continue": asleep["pid"]})
    assert woken["code"] == 1
    assert tables(victim.spec, tmp_path) == at_take_over == want
