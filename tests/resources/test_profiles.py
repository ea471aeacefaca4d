"""The profiles of this project: which tables and which Spark settings each run is given."""

import pytest

from ebbtide.errors import ConfigError
from resources import profiles


@pytest.fixture(autouse=True)
def _no_profile(shell):
    shell.unset("EBBTIDE_PROFILE", "EBBTIDE_ROOT")


def test_without_a_profile_tables_are_in_the_project_and_spark_comes_as_it_is():
    found = profiles.resources()
    assert (found.root, found.spark) == (str(profiles.PROJECT / ".ebbtide"), {})


def test_root_of_the_environment_goes_first(shell):
    shell.export(EBBTIDE_ROOT="/elsewhere")
    assert profiles.resources().root == "/elsewhere"


def test_cluster_cuts_steps_into_more_parts_under_the_root_that_is_given(shell):
    shell.export(EBBTIDE_PROFILE="cluster", EBBTIDE_ROOT="s3://tables/ebbtide")
    found = profiles.resources()
    assert (found.root, found.spark) == ("s3://tables/ebbtide", {"spark.sql.shuffle.partitions": "64"})


def test_cluster_without_a_root_is_refused(shell):
    shell.export(EBBTIDE_PROFILE="cluster")
    with pytest.raises(ConfigError, match=r"has no root\. Set EBBTIDE_ROOT"):
        profiles.resources()


def test_unknown_profile_is_refused_with_those_there_are(shell):
    shell.export(EBBTIDE_PROFILE="clutser")
    with pytest.raises(ConfigError, match=r"Got: EBBTIDE_PROFILE=clutser. Allowed: dev, cluster."):
        profiles.resources()
