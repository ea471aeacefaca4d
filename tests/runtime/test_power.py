"""Power cuts at system calls of runs and operations, one after the other: whatever is left on the disk, the pipeline goes on, and is right.

The calls are seen at libc's own names, from outside: Python, Arrow and delta-rs write through these, and what one of them does not sync is lost here.
It needs gcc, and fails without it.
"""

import pytest
from crashes.lives import Life
from victims import KINDS

N_CUTS = 200


def n_cuts(killer, home, kind, seed, n_works, lives):
    """Live a life without cuts, then some with cuts; return how many there were."""
    life = Life(killer, kind, seed, home, n_works)
    return sum(len(life.live_with_cuts(number)) for number in range(lives))


def test_pipeline_goes_on_after_each_of_five_power_cuts(killer_at_calls, tmp_path):
    assert n_cuts(killer_at_calls, tmp_path, "arrival", 2, 5, 1) >= 5


@pytest.mark.grid
def test_pipeline_goes_on_after_each_of_two_hundred_power_cuts(killer_at_calls, tmp_path):
    cuts = seed = 0
    while cuts < N_CUTS:
        seed += 1
        cuts += sum(n_cuts(killer_at_calls, tmp_path / f"{kind}{seed}", kind, seed, 12, 2) for kind in KINDS)
