"""What tests of faults at system calls share: its processes are warmed up once."""

from collections.abc import Iterator

import pytest
from calls import NoCompilerError, library, preloading
from killing import Killer


@pytest.fixture(scope="session")
def killer_at_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """What has orders done in processes that count their system calls; it fails without gcc: no other test has these faults."""
    folder = tmp_path_factory.mktemp("calls")
    try:
        preload = preloading(library(folder))
    except NoCompilerError as error:
        pytest.fail(str(error))
    with Killer(folder, preload) as killer:
        yield killer
