"""Requests for a lease are turns of the ledger; they are waited for as long as anybody lives, and then forgotten."""

from types import SimpleNamespace

import pytest

from ebbtide.errors import LeaseAskedError
from ebbtide.ledger import Lease, Ledger
from ebbtide.ledger import _requests as module
from ebbtide.ledger._requests import POLL_S, Requests
from ebbtide.ledger._turns import newest_turn


class Waits:
    """In the place of an event and of the clock: time passes with each wait, and what is to happen then happens.

    Args:
        acts: Number of a wait, from 1, to what happens in it.
    """

    def __init__(self, **acts):
        self.acts = acts
        self.now_s = 0.0
        self.n = 0

    def wait(self, seconds):
        self.n += 1
        self.now_s += seconds
        assert self.n < 20, "it waits forever"
        return bool(self.acts.get(f"at_{self.n}", lambda: False)())


def requests_in(folder):
    ledger = str(folder / "ledger")
    with Lease(ledger, "t", 60):
        pass
    return Requests(ledger, "t")


@pytest.fixture
def waited(tmp_path, monkeypatch):
    """Waits, with patience for two waits, until a request is served; returns how often it did, and who still asks."""
    requests = requests_in(tmp_path)
    requests.leave("gone")

    def wait(**acts):
        waits = Waits(**acts)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: waits.now_s))
        requests.wait_until_served(2 * POLL_S, waits)
        return waits.n, requests.names

    return wait


def test_request_refuses_steps_until_it_is_withdrawn(tmp_path):
    requests = requests_in(tmp_path)
    ledger = Ledger(str(tmp_path / "ledger"), "t")
    ledger.turn.refuse_asked()
    requests.leave("a job")
    with pytest.raises(LeaseAskedError) as refused:
        ledger.turn.refuse_asked()
    assert str(refused.value) == (
        "The run makes way for maintenance between two steps. It continues by itself afterwards."
    )
    requests.leave("another")
    requests.leave("another")
    requests.withdraw("a job")
    assert requests.names == ("another",)
    requests.withdraw("another")
    ledger.turn.refuse_asked()


def test_request_and_pause_are_no_sign_of_life_and_are_repeated_by_each_turn(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger"), "t")
    with ledger.lease(60) as lease:
        before = ledger.turn.sign_of_life
        ledger.requests.leave("a job")
        ledger.pause("me", "why", 1, 60)
        assert ledger.turn.sign_of_life == before
        lease.renew_incarnation()
        assert ledger.turn.sign_of_life != before
        assert ledger.turn.requests == ("a job",)
    with ledger.lease(60):
        assert ledger.requests.names == ("a job",)
        assert ledger.turn.paused.reason == "why"


def test_lease_is_taken_behind_a_request_that_came_between_the_look_and_the_commit(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger"), "t")
    with ledger.lease(60):
        pass
    version, seen = newest_turn(ledger.location)
    ledger.requests.leave("a job")
    ledger.lease(60)._take(version, seen)
    assert ledger.turn.epoch == 2
    assert ledger.requests.names == ("a job",)


def test_request_of_one_who_died_is_forgotten_once_patience_is_over(waited):
    assert waited() == (3, ())


def test_request_that_is_withdrawn_is_waited_for_no_longer(waited, tmp_path):
    assert waited(at_2=lambda: Requests(str(tmp_path / "ledger"), "t").withdraw("gone")) == (2, ())


def test_run_that_is_stopped_waits_no_longer(waited):
    assert waited(at_1=lambda: True) == (1, ("gone",))


def test_turn_of_the_lease_is_a_sign_of_life(waited, tmp_path):
    def take():
        with Lease(str(tmp_path / "ledger"), "t", 60):
            pass

    assert waited(at_2=take) == (5, ())


def test_another_request_is_a_sign_of_life(waited, tmp_path):
    assert waited(at_2=lambda: Requests(str(tmp_path / "ledger"), "t").leave("new")) == (5, ())
