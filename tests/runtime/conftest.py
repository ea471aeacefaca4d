"""What tests of faults at system calls share."""

import pytest
from frame.parts import COMPILER, need
from killing import Killer


@pytest.fixture(scope="session")
def killer_at_calls(killer: Killer) -> Killer:
    """Return what has orders done in processes that count their system calls; without gcc there is none."""
    need(COMPILER)
    return killer


@pytest.fixture
def limited(monkeypatch):
    """Have the class of a sink say that it performs actions of some kinds alone."""

    def limit(sink, *kinds):
        monkeypatch.setattr(type(sink), "can", lambda _, action: isinstance(action, kinds))

    return limit
