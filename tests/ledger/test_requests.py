"""Requests for a lease are files; they are waited for as long as anybody lives, and then forgotten."""

from types import SimpleNamespace

import pytest

from ebbtide.errors import LeaseAskedError
from ebbtide.ledger import Lease
from ebbtide.ledger import _requests as module
from ebbtide.ledger._requests import POLL_S, Requests


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


@pytest.fixture
def waited(tmp_path, monkeypatch):
    """Waits, with patience for two waits, until a request is served; returns how often it did, and who still asks."""
    requests = Requests(str(tmp_path / "ledger"))
    requests.leave("gone")

    def wait(**acts):
        waits = Waits(**acts)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: waits.now_s))
        requests.wait_until_served(2 * POLL_S, waits)
        return waits.n, requests.names

    return wait


def test_request_is_an_empty_file_and_refuses_steps_until_it_is_withdrawn(tmp_path):
    requests = Requests(str(tmp_path / "ledger"))
    requests.refuse_asked()
    requests.leave("a job")
    assert (tmp_path / "requests" / "a job").read_bytes() == b""
    with pytest.raises(LeaseAskedError) as refused:
        requests.refuse_asked()
    assert str(refused.value) == (
        "The run makes way for maintenance between two steps. It continues by itself afterwards."
    )
    requests.leave("another")
    requests.withdraw("a job")
    assert requests.names == ["another"]
    requests.withdraw("another")
    requests.refuse_asked()


def test_request_of_one_who_died_is_forgotten_once_patience_is_over(waited):
    assert waited() == (3, [])


def test_request_that_is_withdrawn_is_waited_for_no_longer(waited, tmp_path):
    assert waited(at_2=lambda: Requests(str(tmp_path / "ledger")).withdraw("gone")) == (2, [])


def test_run_that_is_stopped_waits_no_longer(waited):
    assert waited(at_1=lambda: True) == (1, ["gone"])


def test_turn_of_the_lease_is_a_sign_of_life(waited, tmp_path):
    def take():
        with Lease(str(tmp_path / "ledger"), "t", 60):
            pass

    assert waited(at_2=take) == (5, [])


def test_another_request_is_a_sign_of_life(waited, tmp_path):
    assert waited(at_2=lambda: Requests(str(tmp_path / "ledger")).leave("new")) == (5, [])
