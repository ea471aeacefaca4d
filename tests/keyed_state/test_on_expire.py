"""A function that is handed what has expired, over stores of one's own: no way to delete an entry swallows it."""

import random
from collections import Counter
from datetime import timedelta

import pytest

from ebbtide.changelog import RowKind
from ebbtide.keyed_state import (
    Change,
    CleanupConfig,
    CompactionFilter,
    FunctionRun,
    IncrementalCleanup,
    ListStateDescriptor,
    MapStateDescriptor,
    StatefulFunction,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
    compact,
)
from ebbtide.stores import HeapStore, RocksDbStore

CLEANUPS = {
    "none": CleanupConfig(background=False),
    "background": CleanupConfig(),
    "incremental": CleanupConfig(incremental=IncrementalCleanup(cleanup_size=2, run_for_every_record=True)),
    "snapshot": CleanupConfig(full_snapshot=True, background=False),
    "compaction": CleanupConfig(compaction_filter=CompactionFilter(query_time_after_num_entries=3)),
    "timers": CleanupConfig(timers=True, background=False),
}


class Handed(StatefulFunction):
    """Yields what it is handed; each record is written once, to one of the states, and some lists and maps are read."""

    output = "state STRING, value BIGINT"
    value = ValueStateDescriptor("BIGINT")
    items = ListStateDescriptor("BIGINT")
    entries = MapStateDescriptor("BIGINT", key_type="BIGINT")

    def process(self, key, rows, ctx):
        for change in rows:
            n, acts = change.row["n"], change.row["acts"]
            if acts == "value":
                self.value.update(n)
            if acts == "items":
                self.items.add(n)
            if acts == "entries":
                self.entries.put(n, n)
            if acts == "read":
                list(self.items.get())
                list(self.entries.entries())
                self.value.get()
            if acts == "shorten":
                list(self.items.get(ttl=timedelta(milliseconds=1)))
                self.value.get(ttl=timedelta(milliseconds=1))
                list(self.items.get())
        return ()

    def on_expire(self, key, entry, ctx):
        yield {"state": entry.state, "value": entry.value, "key": key, "ended_ms": entry.ended_ms, "at": ctx.now_ms}


@pytest.mark.parametrize("renews", [UpdateType.ON_CREATE_AND_WRITE, UpdateType.ON_READ_AND_WRITE])
@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize("store", ["heap", "rocksdb"])
@pytest.mark.demand("ttl-callback")
def test_every_entry_is_handed_over_once_whatever_deletes_it(tmp_path, store, cleanup, renews):
    rng = random.Random(f"{store} {cleanup} {renews}")
    stores = []

    def new_store():
        stores.append(HeapStore() if store == "heap" else RocksDbStore(tmp_path / str(len(stores))))
        return stores[-1]

    ttl = dict.fromkeys(
        ("value", "items", "entries"),
        StateTtlConfig(ttl=timedelta(milliseconds=20), update_type=renews, cleanup=CLEANUPS[cleanup]),
    )
    run = FunctionRun(Handed(), new_store(), ttl)
    handed, written, replaced = [], [], []
    newest = {}
    for n in range(400):
        run.context.now_ms += rng.choice((0, 0, 1, 3, 25))
        what = rng.random()
        key = (rng.randrange(4),)
        if what < 0.8:
            acts = rng.choice(("value", "items", "items", "entries", "entries", "read", "shorten"))
            change = Change(RowKind.INSERT, {"n": n, "acts": acts})
            got = list(run.process(key, [change]))
            handed += got
            if acts in ("value", "items", "entries"):
                written.append((acts, n))
            if acts == "value":
                replaced += [newest[key]] if key in newest else []
                newest[key] = n
        elif what < 0.9:
            handed += run.advance()
        elif what < 0.95:
            for state in run.states.values():
                compact(state)
        else:
            run = run.restored(new_store(), ttl)
    run.context.now_ms += 1_000
    for number in range(4):
        handed += run.process((number,), [])
    for each in stores:
        if store == "rocksdb":
            each.close()
    counts = Counter((row["state"], row["value"]) for row in handed)
    assert set(counts.values()) <= {1}, "none twice"
    never = set(written) - set(counts)
    assert never <= {("value", n) for n in replaced}, "only a value that was replaced while it lived has not expired"
    assert set(counts) <= set(written)
    assert len(counts) > 100
    assert all(row["ended_ms"] <= row["at"] for row in handed)


def test_what_a_function_clears_itself_is_not_handed_over():
    class Clears(Handed):
        def process(self, key, rows, ctx):
            for change in rows:
                self.value.update(change.row["n"])
                self.value.clear()
                self.entries.put(1, 1)
                self.entries.remove(1)
                self.items.add(1)
                self.items.update([2])
            return ()

    ttl = StateTtlConfig(ttl=timedelta(milliseconds=10))
    run = FunctionRun(Clears(), HeapStore(), dict.fromkeys(("value", "items", "entries"), ttl))
    assert list(run.process(("a",), [Change(RowKind.INSERT, {"n": 1})])) == []
    run.context.now_ms = 10
    assert [row["value"] for row in run.process(("a",), [])] == [2]
