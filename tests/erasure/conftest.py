"""A pipeline whose keys are to be erased, made once for the tests of a file."""

import pytest
from erasing import Played

from ebbtide.delta import copy_space


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return Played(tmp_path_factory.mktemp("played"))


@pytest.fixture
def plants(played, monkeypatch):
    """Its plants, as they were when they had played."""
    monkeypatch.setenv(copy_space.CACHE_FOLDER, str(played.copies))
    yield played.plants
    played.files.put_back()
