"""Jars of Spark packages, found again without Ivy."""

from pathlib import Path

import pytest

from ebbtide.sessions._jars import note_jars, with_known_jars

EXCLUDES = "spark.jars.excludes"
JARS = "spark.jars"
PACKAGES = "spark.jars.packages"


ASKED = {PACKAGES: "io.delta:delta:4.4.0", "spark.app.name": "x"}


@pytest.fixture
def jars(tmp_path: Path, shell: pytest.MonkeyPatch) -> list[Path]:
    """Two jars that Spark does not bring, noted for the packages asked for."""
    shell.export(XDG_CACHE_HOME=tmp_path / "cache")
    paths = [tmp_path / "io.delta_delta-4.4.0.jar", tmp_path / "with space-1.jar"]
    for path in paths:
        path.touch()
    shipped = tmp_path / "org.slf4j_slf4j-api-2.0.13.jar"
    shipped.touch()
    note_jars(ASKED, ",".join(path.as_uri() for path in [*paths, shipped]))
    return paths


def test_packages_are_named_by_their_jars(jars: list[Path]) -> None:
    assert with_known_jars(ASKED) == {"spark.app.name": "x", JARS: ",".join(map(str, jars))}


def test_jars_that_are_given_stay(jars: list[Path]) -> None:
    found = with_known_jars(ASKED | {JARS: "/mine.jar"})
    assert found[JARS] == ",".join([*map(str, jars), "/mine.jar"])


def test_ivy_is_asked_where_a_jar_is_gone(jars: list[Path]) -> None:
    jars[1].unlink()
    assert with_known_jars(ASKED) == ASKED


@pytest.mark.parametrize("other", [{PACKAGES: "io.delta:delta:4.5.0"}, {EXCLUDES: "software.amazon.awssdk:bundle"}])
def test_ivy_is_asked_for_other_packages(jars: list[Path], other: dict[str, str]) -> None:
    others = ASKED | other
    assert with_known_jars(others) == others
