"""Places tasks on executors: each has the same part of all keys from step to step, so that it opens the files of that part alone.

A place is a wish: Spark waits `spark.locality.wait` for it, then runs the task on any other executor. No result depends on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ebbtide.sessions._executors import refuse_unfit_executors

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

Item = TypeVar("Item")

PARTS = 1024
"""Parts of all keys, by the first bits of their hashes."""


class Placement:
    """The executor of each part of the keys, in one application; several threads may ask."""

    def __init__(self) -> None:
        self._parts: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def new_of(self, executors: Sequence[str]) -> list[str]:
        """Return the executors that have no keys yet."""
        with self._lock:
            return [executor for executor in executors if executor not in self._parts]

    def places(self, executors: Sequence[str], hashes: Sequence[int]) -> list[str]:
        """Return the executor of each hash.

        The parts of an executor that is lost go to the rest, and a new one takes its share from all. Nothing else moves.

        Args:
            executors: Those that there are now; at least one.
            hashes: The hashes, 64 bits each.

        Example:
            >>> quarters = [number * 2**62 for number in range(4)]
            >>> placement = Placement()
            >>> placement.places(["a", "b"], quarters)
            ['a', 'a', 'b', 'b']
            >>> placement.places(["b", "c", "d", "e"], quarters)
            ['c', 'd', 'b', 'e']
        """
        with self._lock:
            self._share_among(executors)
            owners = {part: executor for executor, parts in self._parts.items() for part in parts}
        return [owners[hash_ * PARTS >> 64] for hash_ in hashes]

    def _share_among(self, executors: Sequence[str]) -> None:
        most = -(-PARTS // len(executors))  # rounded up
        kept = {executor: self._parts.get(executor, [])[:most] for executor in executors}
        is_kept = {part for parts in kept.values() for part in parts}
        free = [part for part in range(PARTS) if part not in is_kept]
        for parts in kept.values():
            n_missing = most - len(parts)
            parts.extend(free[:n_missing])  # they follow each other: a task has a range of the keys
            del free[:n_missing]
        self._parts = kept


_placements: dict[str, Placement] = {}
"""By the id of their application."""


def spread(session: SparkSession, items: Sequence[Item], at: Callable[[Item], int] | None) -> RDD[Item]:
    """Return items in a partition each.

    Args:
        session: The session.
        items: The items; picklable.
        at: Returns a hash of an item's keys: it prefers the executor of these; see `Executor.map`.
    """
    context = session.sparkContext
    executors = [] if at is None else executors_of(session)
    if at is None or len(executors) < 2:  # any place will do
        return context.parallelize(items, len(items))
    placement = _placements.setdefault(context.applicationId, Placement())
    new = placement.new_of(executors)
    if new:  # they have come since the last step
        refuse_unfit_executors(_placed(session, new, new))
    hashes = [at(item) for item in items]
    return _placed(session, items, placement.places(executors, hashes))


def executors_of(session: SparkSession) -> list[str]:
    """Return the executors, as Spark names the place of each; none in local mode, where all work is in the driver's JVM."""
    found = session.sparkContext._jsc.sc().statusStore().executorList(True)
    places = []
    for number in range(found.size()):
        executor = found.apply(number)
        host, _, _ = executor.hostPort().rpartition(":")
        is_ready = host and executor.id() != "driver"  # its host is known once its block manager is
        if is_ready:
            places.append(f"executor_{host}_{executor.id()}")
    return sorted(places)


def _placed(session: SparkSession, items: Sequence[Item], places: Sequence[str]) -> RDD[Item]:
    # PySpark has no way to say where a partition prefers to be computed. Spark's own has: `SparkContext.makeRDD`.
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    context = session.sparkContext
    jvm: Any = context._jvm
    serializer: Any = CPickleSerializer()
    rows = jvm.java.util.ArrayList()
    for item, place in zip(items, places, strict=True):
        preferred = jvm.java.util.ArrayList()
        preferred.add(place)
        row = jvm.scala.Tuple2(serializer.dumps(item), jvm.PythonUtils.toSeq(preferred))
        rows.add(row)
    class_tags = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$")
    bytes_tag = class_tags.apply(jvm.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), bytes_tag)
    return RDD(made.toJavaRDD(), context, serializer)
