"""What tests of faults at system calls share."""

import pytest
from calls import NO_COMPILER, has_compiler
from killing import Killer


@pytest.fixture(scope="session")
def killer_at_calls(killer: Killer) -> Killer:
    """Return what has orders done in processes that count their system calls; it fails without gcc: no other test has these faults."""
    if not has_compiler():
        pytest.fail(NO_COMPILER)
    return killer
