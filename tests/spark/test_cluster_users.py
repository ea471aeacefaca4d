"""Hosts whose processes are users of their own: they share the root by a group, and nothing else."""

from contextlib import closing

import pytest
from clusters.spark_cluster import Driver, cluster, written_spec
from clusters.spark_support import cut, shop_lines, shop_spec, write
from frame.users import SHARED, make_shared_root, make_users, names_of_owners, open_folder
from oracles.shop_truth import same_as_truth

pytestmark = pytest.mark.grid  # needs root
WORKERS = ("ann", "bob")
DRIVERS = ("cid", "dan")
FOR_THE_GROUP = 0o060


def test_users_share_the_root_alone_and_each_goes_on_with_what_another_has_made():
    with open_folder() as folder:
        users = make_users(folder, (*WORKERS, *DRIVERS))
        spec = shop_spec("orders", write(folder / "in", *cut(shop_lines("orders"), 4)), files=2)
        location = written_spec(folder / "spec", spec)
        root = make_shared_root(folder / "root")
        with cluster(folder, 2, users=[users[name] for name in WORKERS]) as running:

            def seen(event):
                assert event["deaths"] == 1 or event.get("kind") != "batch"
                running.replace_dead()

            for name, works in zip(DRIVERS, ((), ("compact", "cleanup", "vacuum", "rewind")), strict=True):
                home = users[name].home
                with closing(Driver(home, running.address, "host", user=users[name])) as driver:
                    driver.do("run", location, root, seen=seen)
                    for work in works:
                        given = '{"to_step": 2}' if work == "rewind" else "{}"
                        driver.do("operate", location, root, work, given, seen=lambda _: running.replace_dead())
                    driver.do("run", location, root, seen=lambda _: running.replace_dead())
                    assert same_as_truth(spec, root)
        assert names_of_owners(users, root) == {*WORKERS, *DRIVERS}
        assert (root / "orders").stat().st_mode & 0o7777 == SHARED
        assert [path for path in root.rglob("*") if path.stat().st_mode & FOR_THE_GROUP != FOR_THE_GROUP] == []
