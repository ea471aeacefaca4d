"""Clusters: the root is all that executors share with the driver.

Each kind of pipeline: `test_cluster_kinds.py`; the command line: `tests/test_cluster_page.py`.
"""

from contextlib import closing

import pytest
from clusters.spark_cluster import Driver, home_of_spark, written_spec
from clusters.spark_support import cut, shop_lines, shop_spec, write
from oracles.shop_truth import same_as_truth


@pytest.mark.group("launched")  # it mostly waits, as they do, and has no use for a session
def test_executors_share_the_root_alone_and_those_that_die_take_nothing_along(tmp_path):
    """By `local-cluster`: executors are processes, each with a folder of its own; master and workers are threads of the driver's JVM, which
    saves the start of three.
    """
    source = write(tmp_path / "in", *cut(shop_lines("price_list"), 4))
    spec = shop_spec("price_list", source, files=2)
    home = home_of_spark(tmp_path / "spark")
    where_it_works = "."
    own = {f"spark.executorEnv.{name}": where_it_works for name in ("EBBTIDE_CACHE", "TMPDIR")}
    events = []
    with closing(Driver(tmp_path, "local-cluster[2,1,512]", "executor", own, {"SPARK_HOME": str(home)})) as driver:
        folder = written_spec(tmp_path / "spec", spec)
        driver.do("run", folder, tmp_path / "root", seen=events.append)
        places = [driver.do("place", folder, tmp_path / "root")["done"]]
        while len(set(places[-1])) < 2 or places[-1] not in places[:-1]:  # an executor comes for the one that died last
            places.append(driver.do("place", folder, tmp_path / "root")["done"])
        again = [driver.do("place", folder, tmp_path / "root")["done"] for _ in range(3)]
    assert again == [places[-1]] * 3, "each executor has the same keys"
    assert [event["deaths"] for event in events if event["kind"] == "batch"] == [1, 1]
    assert same_as_truth(spec, tmp_path / "root")
    assert list(home.glob("work/app-*/*/*.arrow")), "an executor has copies of its own"
