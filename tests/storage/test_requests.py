"""Requests of a run that goes on to a store that speaks S3: how many, which at the same time, and what of that others still notice."""

import json
import threading

import pytest
from frame.limits import set_limits
from frame.waiting import PATIENCE_S
from local.followed_run import follow
from s3_server import Served, first, longest_chain

import ebbtide
from ebbtide import UpsertPipeline
from ebbtide.delta import DataFile, Log, Snapshot
from ebbtide.errors import LeaseAskedError, LeaseLostError, StoreUnavailableError, TableMismatchError
from ebbtide.ledger import Lease, Ledger, writer_of
from ebbtide.ledger._facts import Pause
from ebbtide.ledger._turns import commit_next
from ebbtide.runtime import Plan
from ebbtide.storage import Location, Together
from ebbtide.storage import _bucket as bucket
from ebbtide.storage._bucket import bucket_of
from ebbtide.storage._together import Memory

pytestmark = pytest.mark.group("object_store")
DATA = b"rows"
UUID = "463d6ad5-47ca-49b5-8a04-6aeddc1a8752"
PART = f"part-{UUID}.parquet"
STEPS = 3
KEYS, CHANGED = 8, 4
"""Keys of the first file, and of each later one: the first data file of the sink keeps rows, so that it gets vectors."""


@pytest.fixture(autouse=True)
def undisturbed(tmp_path, shell):
    """Local copies of its own, no fold, and no look for requests that comes by time."""
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    set_limits(width=1000, asked_every_s=3600)


def spec_in(root, **fields):
    return UpsertPipeline(
        name="p",
        source={"path": f"{root}/in", "records": "value", "max_files_per_step": 1},
        key=["id"],
        format={"type": "plain"},
        schema="id BIGINT, n BIGINT",
        order={"sequence": ["n"]},
        lease_ttl="1h",  # no heartbeat comes while requests are counted
        **fields,
    )


def put_changes(root, number, keys=range(CHANGED)):
    lines = [json.dumps({"kind": "+U", "row": {"id": key, "n": number}}) for key in keys]
    Location(f"{root}/in/{number:03d}.json").write_bytes("\n".join(lines).encode())


def steps_in(proxy, root, between=lambda number: None):
    """The script of a run of some steps, with two looks that find nothing at its end."""
    put_changes(root, 0, range(KEYS))

    def script():
        yield "start"
        for number in range(1, STEPS + 1):
            put_changes(root, number)
            between(number)
            proxy.served.clear()
            yield "step"
        yield "idle look"
        yield "idle look"

    return script


def rows_of(root):
    sink = Plan.under(root, spec_in(root)).sink
    rows = Snapshot.read(sink.path).rows(sink.schema).to_pylist()
    return {row["id"]: row["n"] for row in rows}


def expected(number):
    """What the sink shows after a step."""
    return {key: number if key < CHANGED else 0 for key in range(KEYS)}


def test_small_step_makes_sixteen_requests_at_most_and_a_look_one(proxy, root):
    parts = follow(proxy, spec_in(root), root, steps_in(proxy, root))
    steps = [part for part in parts if part.name == "step"]
    looks = [part for part in parts if "look" in part.name]
    # With the look that finds its file, and the one that follows it.
    assert [part.count() <= 16 + 1 for part in steps] == [True] * STEPS, [part.served for part in steps]
    # A data file of the sink that loses all rows gets no vector.
    assert [part.count("PUT") for part in steps] == [6, 5, 5]
    assert [part.count("LIST") for part in steps] == [2] * STEPS
    assert [part.count() for part in looks] == [1] * len(looks), [part.served for part in looks]
    assert rows_of(root) == expected(STEPS)


class Meeting:
    """A fault that fails nothing: each request of a group is answered once all of the group have come, one group after the other."""

    def __init__(self, *groups):
        self.barriers = [(parts, threading.Barrier(n, timeout=PATIENCE_S)) for n, parts in groups]
        self.n_met = 0

    def __call__(self, method, path):
        for number, (parts, barrier) in enumerate(self.barriers):
            is_its_turn = number <= self.n_met
            if is_its_turn and any(part in f"{method} {path}" for part in parts):
                barrier.wait()
                self.n_met = max(self.n_met, number + 1)


def test_files_of_a_commit_are_put_at_once_and_the_looks_before_it_beside_them(proxy, root):
    put_changes(root, 0, range(KEYS))
    ebbtide.run(ebbtide.InProcess(), spec_in(root), root)
    put_changes(root, 1)
    home = f"{root.removeprefix('s3:/')}/p"
    # Of the state: its file, the commits before and after the new one, and the lease, of which two turns are read. Of the sink: rows,
    # vectors, change feed, and the two commits. If one of a group came after the answer to another, all would wait forever.
    state = [f"PUT {home}/state/part-", f"HEAD {home}/state/_delta_log"]
    sink = [f"PUT {home}/sink/{name}" for name in ("part-", "deletion_vector_", "_change_data")]
    meeting = Meeting((3, state), (5, [*sink, f"HEAD {home}/sink/_delta_log"]))
    with proxy.failing(meeting):
        ebbtide.run(ebbtide.InProcess(), spec_in(root), root)
    assert rows_of(root) == expected(1)


SOME_FILES = [
    "state/part-",
    *(pytest.param(name, marks=pytest.mark.grid) for name in ("sink/part-", "sink/deletion_vector_")),
]


@pytest.mark.parametrize("what", SOME_FILES)
def test_commit_does_not_come_where_one_of_its_files_could_not_be_put(proxy, root, what):
    put_changes(root, 0, range(KEYS))
    ebbtide.run(ebbtide.InProcess(), spec_in(root), root)
    put_changes(root, 1)
    table = f"{root}/p/{what.partition('/')[0]}"
    before = Log(table).versions()
    set_limits(budget_s=0.0, quick_retries={"max_retries": 0})
    bucket._bucket.cache_clear()
    with proxy.failing(first("503", "PUT", what)), pytest.raises(StoreUnavailableError, match=what):
        ebbtide.run(ebbtide.InProcess(), spec_in(root), root)
    assert Log(table).versions() == before
    ebbtide.run(ebbtide.InProcess(), spec_in(root), root)
    assert rows_of(root) == expected(1)


def test_heartbeat_is_a_put_after_two_looks_at_once(proxy, root):
    path = f"{root}/ledger"
    with Lease(path, "p", 3600) as lease:
        for _ in range(2):
            proxy.served.clear()
            lease._renew()
            assert [each.method for each in proxy.served] == ["HEAD", "HEAD", "PUT"]
        proxy.served.clear()
        lease.check()
        assert [each.method for each in proxy.served] == ["GET", "GET"]
        Location(path).delete()
        with pytest.raises(TableMismatchError, match="was deleted"):
            lease._renew()
        with pytest.raises(TableMismatchError, match="was deleted"):
            lease.check()
        assert Location(f"{path}/_delta_log").list_files() == []
        lease.taken_by = "deleted"


def test_look_at_the_lease_finds_what_came_behind_commits_of_other_clients(root):
    path = f"{root}/ledger"
    with Lease(path, "p", 3600) as lease:
        assert writer_of(path).commit(Snapshot.read(path), [], {"operation": "OPTIMIZE"})
        lease.check()
        commit_next(path, lambda newest: newest.model_copy(update={"epoch": 7, "holder": "other@:1:1/x"}))
        with pytest.raises(LeaseLostError):
            lease.check()


def test_pause_is_found_before_the_next_step_reads(proxy, root):
    def paused(newest):
        asked = Pause(by="me", since_ms=1, reason="a test")
        return newest.model_copy(update={"paused": asked, "heartbeat": newest.heartbeat + 1})

    def between(number):
        if number == 2:
            commit_next(f"{root}/p/ledger", paused)

    follow(proxy, spec_in(root), root, steps_in(proxy, root, between))
    assert rows_of(root) == expected(1)


def change_state(root, *, data_change):
    """Commit what another client does: it removes a file, or says of one that is there already that it is."""
    state = Plan.under(root, spec_in(root)).state.snapshot()
    files = list(state.files.values())
    actions = DataFile.replacing(files[:1], []) if data_change else [{"add": {**files[0].add, "dataChange": False}}]
    assert writer_of(state.table).commit(state, actions, {"operation": "OTHER"})


def test_rows_that_another_client_deletes_are_missed_by_the_next_step_which_commits_nothing(proxy, root):
    def between(number):
        if number == 2:
            change_state(root, data_change=True)

    with pytest.raises(TableMismatchError, match="was changed by another client"):
        follow(proxy, spec_in(root), root, steps_in(proxy, root, between))
    assert rows_of(root) == expected(1)


def test_commit_of_another_client_that_changes_no_row_is_followed(proxy, root):
    follow(proxy, spec_in(root), root, steps_in(proxy, root, lambda _: change_state(root, data_change=False)))
    assert rows_of(root) == expected(STEPS)


def test_file_of_a_source_is_read_again_whatever_its_name(root):
    location = f"{root}/in/part-{UUID}.json"
    for data in (b"old", b"newer"):
        Location(location).write_bytes(data)
        with Location(location).open_stream() as stream:
            assert stream.read() == data
        assert Location(location).size() == len(data)


def test_table_s_file_is_asked_for_once_and_not_after_it_was_deleted(proxy, root):
    location = f"{root}/{PART}"
    Location(location).write_bytes(DATA)
    proxy.served.clear()
    assert (Location(location).read_range(1, 2), Location(location).size()) == (DATA[1:3], len(DATA))
    assert proxy.served == []
    Location(location).delete()
    assert (Location(location).read_range(1, 2), Location(location).size()) == (None, None)


def test_what_one_process_alone_reads_is_not_put(proxy, root):
    scratch = f"{root}/staged/{UUID.replace('-', '')}.arrow"
    with Together.step():
        Location(scratch).write_bytes(DATA)
        assert Location(scratch).read_range(0, 9) == DATA
        assert Together.current().written == set()
    assert proxy.served == []
    assert not Location(scratch).exists()
    Location(scratch).write_bytes(DATA)
    assert Location(scratch).exists()


def test_more_than_a_step_may_hold_is_put_and_read_again(proxy, root):
    set_limits(together_held_bytes=5)
    names = [f"{root}/{number:032x}.arrow" for number in range(2)]
    with Together.step():
        for name in names:
            Location(name).write_bytes(DATA)
        assert [each.method for each in proxy.served] == ["PUT"]
        assert [Location(name).read_range(0, 9) for name in names] == [DATA, DATA]


def test_what_fails_beside_the_puts_prevents_the_commit_and_is_raised_once(root):
    def fail():
        raise LeaseLostError("lost")

    with Together.step():
        Together.before_commit(fail)
        with pytest.raises(LeaseLostError):
            bucket_of(root).put_if_absent("commit", DATA)
    assert not Location(f"{root.rpartition('/')[0]}/commit").exists()
    with pytest.raises(LeaseLostError):
        Together.before_commit(fail)
    with pytest.raises(LeaseLostError), Together.step():
        Together.before_commit(fail)


def test_empty_file_is_read(root):
    Location(f"{root}/empty").write_bytes(b"")
    assert Location(f"{root}/empty").read_range(0, 9) == b""
    with Location(f"{root}/empty").open_stream() as stream:
        assert stream.read() == b""
    with pytest.raises(FileNotFoundError), Location(f"{root}/absent").open_stream():
        pass


def test_memory_keeps_what_was_used_last():
    memory = Memory("s3://a", most_bytes=6)
    memory.keep("a", b"aaa")
    memory.keep("b", b"bb")
    assert memory.get("a") == b"aaa"
    memory.keep("c", b"cc")
    assert [memory.get(key) for key in "abc"] == [b"aaa", None, b"cc"]
    memory.keep("a", b"")
    memory.forget("absent")
    memory.keep("d", b"dddd")
    assert [memory.get(key) for key in "acd"] == [b"", b"cc", b"dddd"]


def test_longest_chain_counts_requests_of_which_none_overlaps():
    times = [(0, 1), (1, 2), (1, 3), (2, 4), (3.5, 5)]
    assert longest_chain([Served("GET", "", *each) for each in times]) == 3
    assert longest_chain([]) == 0


@pytest.mark.parametrize(
    "checks",
    [pytest.param(True, id="noticed", marks=pytest.mark.grid), pytest.param(False, id="behind its look at the lease")],
)
def test_run_that_another_overtook_writes_nothing_twice(proxy, root, monkeypatch, checks):
    ledger = f"{root}/p/ledger"

    def overtake(number):
        if number != 2:
            return
        commit_next(ledger, lambda newest: newest.model_copy(update={"epoch": newest.epoch + 1, "holder": ""}))
        ebbtide.run(ebbtide.InProcess(), spec_in(root), root)
        assert rows_of(root) == expected(2)
        if not checks:
            monkeypatch.setattr(Lease, "check", lambda lease: None)

    with pytest.raises(LeaseLostError):
        follow(proxy, spec_in(root), root, steps_in(proxy, root, overtake))
    assert rows_of(root) == expected(2)
    assert Log(f"{root}/p/state").last_step() == Log(f"{root}/p/sink").last_step() == 3


def test_request_for_the_lease_is_looked_for_now_and_then(proxy, root):
    ledger = Ledger(f"{root}/p/ledger", "p")
    with ledger.lease(3600, makes_way=True) as lease:
        lease.make_way(looks=True)
        ledger.requests.leave("other")
        lease.make_way(looks=True)  # too soon to look again
        lease.check()
        with pytest.raises(LeaseAskedError):
            lease.make_way()
