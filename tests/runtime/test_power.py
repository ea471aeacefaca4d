"""Power cuts at system calls of runs and operations, one after the other: whatever of the disk is left, the pipeline goes on, and is right.

It needs gcc, and fails without it: no test in this process sees what Arrow and delta-rs write.
"""

import pytest
from calls import NoCompilerError, library, preloading
from killing import Killer
from lives import Life
from victims import KINDS

pytestmark = pytest.mark.xdist_group("crashes")


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("power")
    try:
        preload = preloading(library(folder))
    except NoCompilerError as error:
        pytest.fail(str(error))
    with Killer(folder, preload) as killer:
        yield killer


def n_cuts(killer, home, kind, seed, n_works, lives):
    """Live a life without cuts, then some with cuts; return how many there were."""
    life = Life(killer, kind, seed, home, n_works)
    return sum(len(life.live_with_cuts(number)) for number in range(lives))


def test_pipeline_goes_on_after_each_of_twenty_power_cuts(killer, tmp_path):
    cuts = [n_cuts(killer, tmp_path / kind, kind, seed, 7, 1) for seed, kind in enumerate(KINDS)]
    assert sum(cuts) >= 20


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
def test_pipeline_goes_on_after_each_of_seventy_power_cuts(killer, tmp_path, kind):
    cuts = seed = 0
    while cuts < 70:
        seed += 1
        cuts += n_cuts(killer, tmp_path / str(seed), kind, 100 + seed, 12, 2)
