"""All strategies say the same, cut anywhere, in any order that the changelog allows; at length by `make model`."""

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

from ebbtide.changelog import RowKind, changelog_schema
from ebbtide.columns import equality_key
from ebbtide.entries import SinkChange, Step
from ebbtide.materializer import OrderedMultiset, SinkUpsertMaterializer, Strategy
from ebbtide.operators import ArrivalOperator, Emission, Materialization
from ebbtide.operators._arrival import kernel
from ebbtide.stores import HeapStore

SCHEMA = pa.schema([("key", pa.int64()), ("u", pa.int64()), ("v", pa.int64())])
KINDS = ["+I", "+U", "-U", "-D"]


def random_logs(rng, logs):
    """Short changelogs of a key each, mixed: (kind, key, u, v)."""
    events = []
    for key in range(logs):
        weights = rng.choice([(4, 2, 1, 1), (1, 1, 1, 1), (2, 2, 2, 2)])
        kinds = rng.choices(KINDS, weights, k=rng.randint(1, 30))
        events += [(rng.random(), kind, key, rng.randrange(3), rng.randrange(3)) for kind in kinds]
    return [event[1:] for event in sorted(events)]


def by_record(events, strategy, upsert_key):
    thresholds = {"high": 4, "low": 2} if strategy is Strategy.ADAPTIVE else {}
    rows = OrderedMultiset(
        HeapStore(),
        strategy,
        identify=(lambda row: row[1]) if upsert_key else equality_key,
        replaces=upsert_key,
        **thresholds,
    )
    materializer = SinkUpsertMaterializer(rows)
    found = (materializer.process(RowKind(kind), row[0], tuple(row)) for kind, *row in events)
    return [(i, out.kind.value, out.row) for i, out in enumerate(found) if out]


class Columns:
    """The operator over steps: what it emitted, the sink that its net changes make, the one that its emissions make."""

    def __init__(self, upsert_key, **how):
        how = Materialization(upsert_key=("u",) if upsert_key else (), emission=Emission.EVERY, **how)
        self.operator = ArrivalOperator(SCHEMA, ("key",), None, how)
        self.state, self.number = self.operator.schema.empty_table(), 0
        self.emitted, self.net, self.every = [], {}, {}

    def step(self, events, first=0):
        self.number += 1
        n = len(events)
        columns = {name: [event[i] for event in events] for i, name in enumerate(["_kind", "key", "u", "v"])}
        columns["_order"] = [{"step": self.number, "part": 0, "position": first + i} for i in range(n)]
        schema = changelog_schema(SCHEMA)
        arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type) for f in schema]
        result = self.operator.apply(pa.Table.from_arrays(arrays, schema=schema), self.state, Step(self.number, 0))
        self.state = pa.concat_tables([self.state, result.entries])
        for each in result.emitted.to_pylist():
            row = (each["key"], each["u"], each["v"])
            self.emitted.append((each["_order"]["position"], each["_kind"], row))
            show(self.every, row, each["_kind"] == "-D")
        for each in result.entries.to_pylist():
            if each["_change"] is not None:
                show(self.net, (each["key"], each["u"], each["v"]), each["_change"] == SinkChange.DELETE)
        return self


def show(sink, row, gone):
    if gone:
        del sink[row[0]]
    else:
        sink[row[0]] = row


def strategies_agree(seed, logs, upsert_key):
    rng = random.Random(seed)
    events = random_logs(rng, logs)
    whole = Columns(upsert_key).step(events)
    for strategy in Strategy:
        assert by_record(events, strategy, upsert_key) == whole.emitted, strategy
    cuts = sorted({0, len(events), *(rng.randrange(len(events) + 1) for _ in range(3))})
    parts = Columns(upsert_key)
    for a, b in itertools.pairwise(cuts):
        parts.step(events[a:b], a)
    assert parts.emitted == whole.emitted
    assert parts.net == parts.every == whole.net == whole.every


@pytest.mark.parametrize("upsert_key", [False, True])
@pytest.mark.demand("sum-strategies")
def test_strategies_agree_on_random_changelogs(upsert_key):
    strategies_agree(1, 500, upsert_key)


@pytest.mark.model
@pytest.mark.parametrize("upsert_key", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_strategies_agree_on_many_random_changelogs(seed, upsert_key):
    strategies_agree(seed, 5_000, upsert_key)


def consistent(rng, keys):
    """Changelogs that end with one row or none per key, each change whole; and the table that they mean."""
    events, table = [], {}
    for key in range(keys):
        v = None
        for _ in range(rng.randint(1, 8)):
            new = None if rng.random() < 0.2 else rng.randrange(6)
            events += [("-U" if new is not None else "-D", key, 0, v)] if v is not None else []
            events += [("+U" if v is not None else "+I", key, 0, new)] if new is not None else []
            v = new
        if v is not None:
            table[key] = (key, 0, v)
    return events, table


@pytest.mark.parametrize("grace_ms", [0, 1])
@pytest.mark.demand("sum-order")
def test_table_does_not_depend_on_the_order_of_arrival(grace_ms):
    """Each retraction after its insertion; in any order at all where retractions wait."""
    rng = random.Random(grace_ms)
    events, table = consistent(rng, 400)
    for _ in range(3):
        places = [rng.random() for _ in events]
        if not grace_ms:
            places = after_insertions(events, places)
        shuffled = [event for _, event in sorted(zip(places, events, strict=True), key=lambda pair: pair[0])]
        done = Columns(upsert_key=False, retraction_grace_ms=grace_ms)
        for at in range(0, len(shuffled), 700):
            done.step(shuffled[at : at + 700], at)
        assert done.net == done.every == table


def after_insertions(events, places):
    """Give the n-th retraction of a row a place after that of its n-th insertion."""
    found, waiting = list(places), {}
    for i, (kind, *row) in enumerate(events):
        if kind in ("+I", "+U"):
            waiting.setdefault(tuple(row), []).append(places[i])
    for at in waiting.values():
        at.sort()
    for i, (kind, *row) in enumerate(events):
        if kind in ("-U", "-D"):
            found[i] = max(found[i], waiting[tuple(row)].pop(0) + 1e-9)
    return found


@pytest.mark.model
@pytest.mark.parametrize("upsert_key", [False, True])
@pytest.mark.parametrize(("keys", "live"), [(1, 10), (1000, 10_000), (1, 100_000), (7, 20), (300_000, 300_000)])
@pytest.mark.parametrize("pattern", ["random", "oldest first"])
def test_kernel_and_strategies_agree_on_a_million_rows(upsert_key, keys, live, pattern):
    """Twenty changelogs; the lists only where they stay short."""
    n, rng = 1_000_000, np.random.default_rng(live)
    number = np.arange(n) // 2 % (live * 2) if pattern == "oldest first" else rng.integers(0, live * 2, n)
    adds = np.arange(n) % 2 == 0 if pattern == "oldest first" else rng.random(n) < 0.4
    number = np.where(adds | (pattern == "random"), number, (number - live) % (live * 2))
    key = number % keys
    found = kernel.materialize(
        *(np.unique(each, return_inverse=True)[1] for each in (key, number)), adds, replaces=upsert_key
    )
    kinds = {1: "+I", 2: "+U", 3: "-D"}
    want = [
        (kinds[o], s) if o in kinds else None
        for o, s in zip(found.outcome.tolist(), found.source.tolist(), strict=True)
    ]
    small = live // keys < 100
    for strategy in [Strategy.MAP, Strategy.ADAPTIVE, *([Strategy.LEGACY, Strategy.VALUE] if small else [])]:
        rows = OrderedMultiset(HeapStore(), strategy, identify=lambda row: row[0], replaces=upsert_key)
        materializer = SinkUpsertMaterializer(rows)
        for t, (k, i, add) in enumerate(zip(key.tolist(), number.tolist(), adds.tolist(), strict=True)):
            out = materializer.process(RowKind.INSERT if add else RowKind.DELETE, k, (i, t))
            assert (out is None) == (want[t] is None)
            if out is not None and want[t] is not None:
                kind, source = want[t]
                assert out.kind.value == kind
                assert out.row == (number[source], source)
