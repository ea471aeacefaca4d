"""The lease has one holder at a time, also if holders die, are silent or start at the same moment."""

import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from frame.limits import set_limits
from frame.waiting import PATIENCE_S

from ebbtide.delta import Log, Snapshot, Writer
from ebbtide.errors import LeaseHeldError, LeaseLostError, StoreUnavailableError, VersionTakenError
from ebbtide.ledger import Lease
from ebbtide.ledger._turns import newest_turn
from ebbtide.processes import Process

ELSEWHERE = "elsewhere:1:1/x"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "ledger")


def test_lease_of_a_silent_holder_elsewhere_is_taken_over_and_the_loser_stops(path):
    with Lease(path, "p", 3600) as stale:
        stale._me = ELSEWHERE
        stale._renew(holder=ELSEWHERE)
        with Lease(path, "p", 0.5) as winner:
            assert winner.facts.epoch == stale.facts.epoch + 1
            assert winner.facts.incarnation == stale.facts.incarnation
            with pytest.raises(LeaseLostError) as raised:
                stale.check()
            assert str(raised.value) == (
                f"Another run has taken 'p' over. Got: {Process.this()}."
                " This run stopped before its next commit; nothing is lost."
            )
            with pytest.raises(LeaseLostError):
                stale._renew()


def test_holder_elsewhere_that_gives_signs_of_life_keeps_the_lease(path):
    with Lease(path, "p", 3600) as holder:
        holder._me = ELSEWHERE
        holder._renew(holder=ELSEWHERE)
        beat = threading.Timer(0.3, holder._renew)
        beat.start()
        with pytest.raises(LeaseHeldError, match="process 1 on 'elsewhere'"), Lease(path, "p", 5):
            pass
        beat.join()


def test_lease_is_won_by_one_of_many_who_see_it_free(path):
    with Lease(path, "p", 3600):
        pass
    barrier = threading.Barrier(6)
    won, refused = [], []

    def take():
        lease = Lease(path, "p", 3600)
        barrier.wait()
        try:
            with lease:
                won.append(lease.facts.epoch)
                time.sleep(0.5)
        except LeaseHeldError:
            refused.append(lease)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (won, len(refused)) == ([2], 5)


def test_lease_of_a_living_process_of_this_machine_is_refused_at_once(path):
    with Lease(path, "p", 3600), pytest.raises(LeaseHeldError) as raised, Lease(path, "p", 3600):
        pass
    assert str(raised.value) == (
        f"Pipeline 'p' is being run by process {os.getpid()} on '{os.uname().nodename}'. Allowed: one run at a time."
        " Wait for it to end, or stop it, and start again."
    )


def about_to_take(path):
    """A lease that has seen that it is free, the version at which it has, and the turn there."""
    with Lease(path, "p", 3600):
        pass
    late = Lease(path, "p", 3600)
    version, seen = newest_turn(path)
    return late, version, seen


def test_taker_who_comes_after_a_whole_turn_of_another_is_refused(path):
    late, version, seen = about_to_take(path)
    with Lease(path, "p", 3600):
        pass
    with pytest.raises(LeaseHeldError, match="by process that has ended on 'another host'"):
        late._take(version, seen)


def test_taker_whose_version_was_taken_meanwhile_is_refused(path):
    late, version, seen = about_to_take(path)
    with Lease(path, "p", 3600), pytest.raises(LeaseHeldError):
        late._take(version, seen)


def test_lease_beats_and_is_free_in_the_end(path):
    with Lease(path, "p", 0.3) as lease:
        until = time.monotonic() + PATIENCE_S
        while lease.facts.heartbeat < 3 and time.monotonic() < until:
            time.sleep(0.05)
        assert lease.facts.heartbeat >= 3
    _, last = newest_turn(path)
    assert last.is_free


class Pauses:
    """Stands in for the event that ends the heartbeats: notes how long each pause is, and ends after some."""

    def __init__(self, n):
        self.n, self.seen = n, []

    def wait(self, pause_s):
        self.seen.append(pause_s)
        return len(self.seen) > self.n


def test_heart_beats_three_times_in_a_lease_s_time_and_sooner_after_a_beat_that_failed(path, caplog):
    lease = Lease(path, "p", 90)
    beats = iter([None, OSError("disk"), OSError("store"), None])

    def renew():
        error = next(beats)
        if error:
            raise error

    lease._renew, lease._done = renew, Pauses(4)
    lease._keep()
    assert lease._done.seen == [30, 30, 7.5, 7.5, 30]
    assert caplog.messages == [
        f"A heartbeat of 'p' failed, the next follows in 7.5 s: {why}" for why in ("disk", "store")
    ]


def test_heartbeat_of_a_lease_that_was_lost_is_the_last(path):
    def lost():
        raise LeaseLostError("lost")

    lease = Lease(path, "p", 90)
    lease._renew, lease._done = lost, Pauses(4)
    lease._keep()
    assert len(lease._done.seen) == 1


def test_heartbeat_thread_bears_the_pipeline_s_name_and_keeps_no_process_alive(path):
    with Lease(path, "p", 3600):
        [beat] = [thread for thread in threading.enumerate() if thread.name == "lease-p"]
        assert beat.daemon
    assert not beat.is_alive()


def test_turns_are_commits_of_the_ledger_one_after_the_other(path):
    with Lease(path, "p", 3600) as lease:
        lease._renew()
        lease._renew()
    assert Log(path).versions() == list(range(5))
    operations = [Log(path).commit(version).info()["operation"] for version in Log(path).versions()]
    assert operations == ["CREATE TABLE", *["LEASE"] * 4]
    assert Snapshot.read(path).metadata["name"] == "p ledger"


def test_heartbeat_whose_version_was_taken_is_put_as_the_next(path, monkeypatch):
    with Lease(path, "p", 3600) as lease:
        stale = [newest_turn(path)]
        lease._renew()
        monkeypatch.setattr("ebbtide.ledger._turns.newest_turn", lambda _: stale.pop() if stale else newest_turn(path))
        lease._renew()
        version, newest = newest_turn(path)
        assert (version, newest.heartbeat) == (3, lease.facts.heartbeat)


def test_heartbeat_that_always_loses_its_version_is_given_up(path, monkeypatch):
    tries = []

    def taken(_, version, *__):
        tries.append(version)
        raise VersionTakenError("taken")

    with Lease(path, "p", 3600) as lease, monkeypatch.context() as patch:
        patch.setattr("ebbtide.ledger._turns.commit_turn", taken)
        with pytest.raises(VersionTakenError) as raised:
            lease._renew()
    assert str(raised.value) == f"The ledger '{path}' is written by other processes all the time. Got: 5 tries."
    assert len(tries) == 5


def test_run_that_was_taken_over_unnoticed_ends_without_an_error(path):
    with Lease(path, "p", 3600) as stale:
        stale._me = ELSEWHERE
        stale._renew(holder=ELSEWHERE)
        winner = Lease(path, "p", 0.1).__enter__()
    winner.check()
    winner.__exit__(None, None, None)


def test_new_incarnation_is_stored(path):
    with Lease(path, "p", 3600) as lease:
        before = lease.facts.incarnation
        after = lease.renew_incarnation()
    assert before != after
    [newest, *_] = [facts["incarnation"] for _, facts in Log(path).own_commits()]
    assert newest == after


@contextmanager
def holder_in(path, ttl_s, *namespaces, host=None):
    """A process in namespaces of its own that holds the lease; killed at the end, without a word to the ledger."""
    hold = [sys.executable, str(Path(__file__).with_name("elsewhere.py")), path, str(ttl_s)]
    rename = ["sh", "-c", f'hostname {host}; exec "$@"', "sh"] if host else []
    as_root = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *as_root, "--fork", "--kill-child", *namespaces, *rename, *hold]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


CONTAINER = ("--pid", "--mount-proc")
HOST = ("--uts", "--net", "--pid", "--mount-proc")


@pytest.mark.parametrize(("namespaces", "host"), [(CONTAINER, None), (HOST, "elsewhere")])
def test_a_live_holder_in_another_namespace_is_not_taken_for_gone(path, namespaces, host):
    """Its process number, 1 in the container, means another process here."""
    named = pytest.raises(LeaseHeldError, match=f"on '{host or os.uname().nodename}'")
    with holder_in(path, 3, *namespaces, host=host), named, Lease(path, "p", 5):
        pass


def test_a_holder_on_another_host_that_was_killed_is_waited_for_and_followed(path):
    with holder_in(path, 60, *HOST, host="elsewhere"):
        pass
    begin = time.monotonic()
    with Lease(path, "p", 2) as lease:
        waited_s = time.monotonic() - begin
        assert lease.facts.epoch == 2
    assert waited_s >= 2


def test_folder_of_a_pipeline_is_made_private(tmp_path):
    home = tmp_path / "root" / "t"
    with Lease(str(home / "ledger"), "t", 3600):
        modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (home, home.parent)]
    assert modes == [0o700, 0o700]


def test_lease_that_could_not_be_given_back_is_taken_again_by_the_same_process(path, monkeypatch, caplog):
    def full(*_, **changes):
        raise OSError(28, "No space left on device")

    first = Lease(path, "p", 3600)
    first.__enter__()
    monkeypatch.setattr(first, "_renew", full)
    failure = ValueError("what ended the run")
    assert first.__exit__(ValueError, failure, None) is None, "the run fails of that, not of the disk"
    assert caplog.messages == ["The lease of 'p' was not given back: [Errno 28] No space left on device"]
    with Lease(path, "p", 3600) as second:
        assert second.facts.epoch == first.facts.epoch + 1


def unavailable(*_):
    raise StoreUnavailableError.of("The store does not answer.")


def test_turn_with_a_lost_answer_does_not_block_the_same_process(path, monkeypatch):
    Lease(path, "p", 3600).__enter__().__exit__(None, None, None)

    commit_version = Writer.commit_version

    def lost(*given):
        commit_version(*given)
        unavailable()

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "commit_version", lost)
        with pytest.raises(StoreUnavailableError), Lease(path, "p", 3600):
            pass
    with Lease(path, "p", 3600) as second:
        assert second.facts.epoch == 3


def test_run_whose_store_went_away_writes_no_more_and_is_followed_by_its_process(path):
    first = Lease(path, "p", 3600)
    with pytest.raises(StoreUnavailableError), first:
        unavailable()
    assert first._newest().holder == first._me
    with Lease(path, "p", 3600) as second:
        assert second.facts.epoch == first.facts.epoch + 1


def test_long_run_keeps_a_limited_number_of_turns(path):
    set_limits(turns_kept=5, trim_every=20, checkpoint_interval=10)
    sizes = []
    with Lease(path, "p", 3600) as lease:
        for _ in range(6):
            lease._done, kept = Pauses(20), lease._done
            lease._keep()
            lease._done = kept
            sizes.append(len(list(Path(path, "_delta_log").iterdir())))
        lease.check()
    assert sizes[1:] == sizes[1:2] * 5, sizes
    assert Log(path).versions()[0] > 100
    with Lease(path, "p", 3600) as later:
        assert later.facts.epoch == 2
    assert Snapshot.read(path).version == Log(path).versions()[-1]


def test_many_short_runs_keep_a_limited_number_of_turns(path):
    set_limits(turns_kept=5, trim_every=20, checkpoint_interval=10)
    sizes = []
    for number in range(1, 81):
        with Lease(path, "p", 3600) as lease:
            assert lease.facts.epoch == number
        sizes.append(len(Log(path).versions()))
    assert max(sizes) < 60, sizes
    assert sizes[79] == sizes[39]
