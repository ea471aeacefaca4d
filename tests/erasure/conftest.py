"""A pipeline whose keys are to be erased, made once for the tests of a file."""

import pytest
from inputs.erasing import Played


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return Played(tmp_path_factory.mktemp("played"))


@pytest.fixture
def plants(played, shell):
    """Its plants, as they were when they had played."""
    shell.export(EBBTIDE_CACHE=played.copies)
    yield played.plants
    played.files.put_back()
