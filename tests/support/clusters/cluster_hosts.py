"""A cluster whose hosts die under the tasks of each step and operation, and the shop's records and truth for it."""

import json
from pathlib import Path

from clusters.spark_cluster import written_spec
from clusters.spark_support import cut, shop_lines, write
from local.support import SHOP, lines_of

from ebbtide.delta import Snapshot
from ebbtide.runtime import Plan

N_WORKERS = 3
STEPS = 4


class Hosts:
    """A cluster and a driver. Under the tasks of each step a host dies, and a new one with empty disks takes its place.

    Args:
        home: Folder of the test: has the tables.
        running: The cluster.
        driver: The driver.
    """

    def __init__(self, home, running, driver):
        self.home, self.running, self.driver = home, running, driver
        self._events = []
        self._takes_one_out = False

    @property
    def root(self):
        return self.home / "root"

    def do(self, what, spec, *more):
        """Do something with a pipeline; return what came of it, and how many hosts died."""
        self._events = []
        folder = spec if isinstance(spec, Path) else written_spec(self.home / "specs" / spec.name, spec)
        done = self.driver.do(what, folder, self.root, *more, seen=self._seen)
        return done["done"], sum(event["deaths"] for event in self._events)

    def operate(self, spec, name, **given):
        """Apply an operation, as `do`."""
        return self.do("operate", spec, name, json.dumps(given))

    def run(self, spec):
        """Run a pipeline; each of its batches costs a host."""
        self.do("run", spec)
        deaths = [event["deaths"] for event in self._events if event["kind"] == "batch"]
        assert set(deaths) == {1}, deaths
        return len(deaths)

    def decommission_one(self):
        """Take a host out of service once the next step is done, and add one."""
        self._takes_one_out = True

    def _seen(self, event):
        self._events.append(event)
        if "begins" in event:
            self.running.workers[0].kill()
        self.running.replace_dead()
        if self._takes_one_out:
            self._takes_one_out = False
            self.running.workers[0].decommission()
            self.running.add()


def read_table(root, spec, name):
    """A table's rows, as dicts."""
    tables = Plan.under(str(root), spec)
    table = tables.sink if name == "sink" else tables.beside(name)
    return Snapshot.read(table.path).rows(table.schema).to_pylist()


def source_of(hosts, name, *, bad=0):
    """A shop pipeline's records as files, two for each of four steps."""
    parts = cut(shop_lines(name), 2 * STEPS)
    for part in parts[:bad]:
        part.insert(len(part) // 2, "{ no record")
    return write(hosts.home / "in" / name, *parts)


def true_rows(name):
    return [json.loads(line) for line in lines_of(SHOP / "truth" / f"{name}.jsonl.gz")]
