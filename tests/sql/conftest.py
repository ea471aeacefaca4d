"""A catalog of two sources, a table and a function, and a session over it."""

from pathlib import Path

import pytest
from statements.answering import answers

from ebbtide.sql import Catalog, EmbeddedSession

SOURCE = """CREATE SOURCE log (id BIGINT NOT NULL, v STRING, at TIMESTAMP, amount DECIMAL(12,2), PRIMARY KEY (id))
    COMMENT 'what happened' WITH (path = '{path}', format = plain, format.position = '[p]', sequence = 'at, id')"""
TABLE = "CREATE TABLE kept (id BIGINT NOT NULL, v STRING, at TIMESTAMP, PRIMARY KEY (id)) WITH (ttl = '30d')"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """An empty catalog."""
    return Catalog(str(tmp_path / "root"), tmp_path / "defs")


@pytest.fixture
def session(catalog: Catalog):
    """A session over it that has started no Spark."""
    session = EmbeddedSession({"default": catalog}, {})
    yield session
    session.close()


@pytest.fixture
def do(session: EmbeddedSession):
    """Execute a statement; return its message, or its rows."""
    return answers(session)


class Clock:
    """A clock in seconds that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def declared(do, tmp_path: Path):
    """A source and a table are declared."""
    (tmp_path / "in").mkdir()
    do(SOURCE.format(path=tmp_path / "in"))
    do(TABLE)
