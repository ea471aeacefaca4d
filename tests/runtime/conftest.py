"""What tests of faults at system calls share."""

import pytest
from killing import Killer
from parts import COMPILER, need


@pytest.fixture(scope="session")
def killer_at_calls(killer: Killer) -> Killer:
    """Return what has orders done in processes that count their system calls; without gcc there is none."""
    need(COMPILER)
    return killer
