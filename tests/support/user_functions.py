"""Stateful functions as users write them."""

from datetime import timedelta
from decimal import Decimal

from ebbtide import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StatefulFunction,
    StateTtlConfig,
    TimeCharacteristic,
    ValueStateDescriptor,
)


class Everything(StatefulFunction):
    """Keeps one of each kind and type; shows what it remembers."""

    output = "seen STRING, total DECIMAL(12,2), recent ARRAY<BIGINT>, per_word MAP<STRING, INT>"
    profile = ValueStateDescriptor(
        "STRUCT<first: STRING, tags: ARRAY<STRING>, by_day: MAP<DATE, DECIMAL(12,2)>, note: STRING>"
    )
    recent = ListStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=100)))
    per_word = MapStateDescriptor("INT", key_type="STRING")

    def process(self, key, rows, ctx):
        for change in rows:
            word, n, day = change.row["v"], change.row["seq"], change.row["day"]
            old = self.profile.get() or {"first": word, "tags": [], "by_day": {}, "note": None}
            by_day = dict(old["by_day"])
            by_day[day] = by_day.get(day, Decimal(0)) + Decimal(n) / 4
            self.profile.update(old | {"tags": [*old["tags"], word], "by_day": by_day})
            self.recent.add(n)
            self.per_word.put(word, (self.per_word.get(word) or 0) + 1)
        found = self.profile.get()
        yield {
            "seen": found["first"] + ":" + ",".join(found["tags"]),
            "total": sum(found["by_day"].values()),
            "recent": list(self.recent.get()),
            "per_word": dict(sorted(self.per_word.entries())),
        }


def halved(n):
    """Leave half of an even number, and no odd one."""
    return n // 2 if n % 2 == 0 else None


def without_note(row):
    """Take a part out in place, as a user may."""
    row["note"] = None
    return row


class Transformed(StatefulFunction):
    """Writes each number to a state of each kind; yields what it finds. A null number writes nothing."""

    output = "value BIGINT, items ARRAY<BIGINT>, each ARRAY<BIGINT>, note STRING, plain BIGINT"
    value = ValueStateDescriptor("BIGINT", snapshot_transformer=halved)
    items = ListStateDescriptor("BIGINT", snapshot_transformer=halved)
    each = MapStateDescriptor("BIGINT", key_type="BIGINT", snapshot_transformer=halved)
    row = ValueStateDescriptor("STRUCT<n: BIGINT, note: STRING>", snapshot_transformer=without_note)
    plain = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        for change in rows:
            n = change.row["n"]
            if n is not None:
                self.value.update(n)
                self.items.add(n)
                self.each.put(n, n)
                self.row.update({"n": n, "note": "private"})
                self.plain.update(n)
        yield {
            "value": self.value.get(),
            "items": list(self.items.get()),
            "each": sorted(self.each.values()),
            "note": (self.row.get() or {}).get("note"),
            "plain": self.plain.get(),
        }


class FailsToTransform(Transformed):
    value = ValueStateDescriptor("BIGINT", snapshot_transformer=lambda n: n // 0)


class Alarm(StatefulFunction):
    """Deletes a key's row when nothing came for 50 ms; says how often it rang."""

    output = "rang BIGINT"
    rang = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        for _ in rows:
            pass
        ctx.timers.register(ctx.now_ms + 50)
        yield {"rang": self.rang.get() or 0}

    def on_timer(self, key, time_ms, ctx):
        rang = (self.rang.get() or 0) + 1
        self.rang.update(rang)
        yield ctx.delete({}) if rang > 1 else {"rang": rang}


class PerDay(StatefulFunction):
    """Counts per key and day: the sink's key is wider than the function's."""

    output = "day DATE, n BIGINT"
    n = MapStateDescriptor(
        "BIGINT",
        StateTtlConfig(ttl=timedelta(days=2), time_characteristic=TimeCharacteristic.EVENT_TIME),
        key_type="DATE",
    )

    def process(self, key, rows, ctx):
        for change in rows:
            day = change.row["day"]
            self.n.put(day, (self.n.get(day) or 0) + 1)
            if self.n.contains(day):
                yield {"day": day, "n": self.n.get(day)}


class Fails(StatefulFunction):
    output = "n BIGINT"
    count = ValueStateDescriptor("BIGINT")
    seen = MapStateDescriptor("BIGINT", key_type="TINYINT")

    def __init__(self, how="raise"):
        self.how = how

    def process(self, key, rows, ctx):
        if self.how == "raise":
            raise KeyError("gone")
        if self.how == "raise lines":
            raise ValueError("one\ntwo")
        if self.how == "state":
            self.count.update("many")
        if self.how == "map key":
            self.seen.put(1000, 1)
        misfits = {"column": {"m": 1}, "type": {"n": "many"}, "key": {"id": 99, "n": 1}, "null": {"n": None}}
        yield misfits.get(self.how, {"n": 1})


class Colour(StatefulFunction):
    """Reads a map."""

    output = "colour STRING"

    def process(self, key, rows, ctx):
        for change in rows:
            yield {"colour": change.row["attributes"]["colour"]}


class Narrow(StatefulFunction):
    output = "shown STRING"
    kept = ValueStateDescriptor("STRUCT<a: INT, m: ARRAY<STRUCT<x: INT>>>")
    old = ValueStateDescriptor("INT")

    def process(self, key, rows, ctx):
        for change in rows:
            self.kept.update({"a": change.row["seq"], "m": [{"x": 1}]})
        self.old.update(1)
        yield {"shown": str(self.kept.get())}


class Wide(StatefulFunction):
    output = "shown STRING"
    kept = ValueStateDescriptor("STRUCT<a: BIGINT, m: ARRAY<STRUCT<x: BIGINT, y: STRING>>, b: STRING>")
    new = ListStateDescriptor("INT")

    def process(self, key, rows, ctx):
        before = self.kept.get()
        for change in rows:
            self.kept.update({"a": 2**40, "m": [], "b": change.row["v"]})
            self.new.add(1)
        yield {"shown": str(before)}


class Other(StatefulFunction):
    output = "shown STRING"
    kept = ValueStateDescriptor("STRING")


class InPlace(StatefulFunction):
    output = "n BIGINT, ratio DOUBLE"
    kept = ValueStateDescriptor("MAP<STRING, BIGINT>")

    def process(self, key, rows, ctx):
        found = self.kept.get() or {}
        for _ in rows:
            found["n"] = found.get("n", 0) + 1
        self.kept.update(found)
        yield {"n": found["n"], "ratio": float("nan"), "id": key[0]}


class Prices(StatefulFunction):
    """Keeps prices in a map, as keys."""

    output = "prices STRING"
    seen = MapStateDescriptor("BOOLEAN", key_type="DECIMAL(10,2)")

    def __init__(self, as_text=False):
        self.as_text = as_text

    def process(self, key, rows, ctx):
        for change in rows:
            price = change.row["v"] if self.as_text else Decimal(change.row["v"])
            if change.kind == "+I":
                self.seen.put(price, True)
            else:
                self.seen.remove(price)
        yield {"prices": ",".join(sorted(f"{price:.0f}" for price, _ in self.seen.entries()))}


class Reserved(StatefulFunction):
    """Its output has a column of ours."""

    output = "n INT, _Changed_by STRING"


class TwiceTheKey(StatefulFunction):
    """Its output has the key again, in capitals."""

    output = "ID INT"


class Listed(StatefulFunction):
    """`Narrow`, whose value has become a list."""

    output = "shown STRING"
    kept = ListStateDescriptor("STRUCT<a: INT, m: ARRAY<STRUCT<x: INT>>>")
    old = ValueStateDescriptor("INT")


class ShortLived(StatefulFunction):
    """Two values; each put of them lives for a time of its own."""

    output = "shown STRING"
    one = ValueStateDescriptor("BIGINT")
    other = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        shown = f"{self.one.get()}, {self.other.get()}"
        for change in rows:
            self.one.update(change.row["seq"], ttl=timedelta(milliseconds=500))
            self.other.update(change.row["seq"], ttl=timedelta(milliseconds=500))
        yield {"shown": shown}


class Counts(StatefulFunction):
    """Counts changes, each as so many as it is told."""

    output = "n BIGINT"
    n = ValueStateDescriptor("BIGINT")

    def __init__(self, by=1, token=""):
        self.by = by

    def process(self, key, rows, ctx):
        for _ in rows:
            self.n.update((self.n.get() or 0) + self.by)
        yield {"n": self.n.get()}


class CountsToo(Counts):
    """The same states and output."""


class Mean:
    """Gathers numbers; the mean of no number is none."""

    def create_accumulator(self):
        return {"n": 0, "total": 0}

    def add(self, value, accumulator):
        accumulator["n"] += 1
        accumulator["total"] += value
        return accumulator

    def get_result(self, accumulator):
        return accumulator["total"] / accumulator["n"]


class Extremes(StatefulFunction):
    """Shows the greatest number and the mean of what has not expired."""

    output = "most BIGINT, mean DOUBLE"
    most = ReducingStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=100)), reduce=max)
    mean = AggregatingStateDescriptor(
        "STRUCT<n: BIGINT, total: BIGINT>", StateTtlConfig(ttl=timedelta(milliseconds=100)), aggregate=Mean()
    )

    def process(self, key, rows, ctx):
        for change in rows:
            self.most.add(change.row["seq"])
            self.mean.add(change.row["seq"])
        yield {"most": self.most.get(), "mean": self.mean.get()}


class HandedOver(StatefulFunction):
    """Shows each entry that has expired as a row, with how often it was handed over: `STATE/VALUE`."""

    output = "entry STRING, ended_ms BIGINT, times BIGINT"
    newest = ValueStateDescriptor("BIGINT")
    items = ListStateDescriptor("BIGINT")
    each = MapStateDescriptor("BIGINT", key_type="BIGINT")
    times = MapStateDescriptor("BIGINT", key_type="STRING")

    def process(self, key, rows, ctx):
        for change in rows:
            n = change.row["seq"]
            self.newest.update(n)
            self.items.add(n)
            self.each.put(n, n)
        return ()

    def on_expire(self, key, entry, ctx):
        if entry.state == "each":
            assert entry.user_key == entry.value
        name = f"{entry.state}/{entry.value}"
        times = (self.times.get(name) or 0) + 1
        self.times.put(name, times)
        yield {"entry": name, "ended_ms": entry.ended_ms, "times": times}


class InOrder(StatefulFunction):
    """Shows in which order it is called, step by step."""

    output = "course STRING"
    seen = ValueStateDescriptor("BIGINT")
    course = ValueStateDescriptor("STRING")

    def process(self, key, rows, ctx):
        for change in rows:
            self.seen.update(change.row["seq"])
            yield self._called(f"row {change.row['seq']}")
            ctx.timers.register(ctx.now_ms + 50)

    def on_timer(self, key, time_ms, ctx):
        yield self._called(f"timer {time_ms}")

    def on_expire(self, key, entry, ctx):
        course = self.course.get()
        self.course.update(f"{course}; expired {entry.value}")
        yield {"course": self.course.get()}

    def _called(self, what):
        course = self.course.get()
        self.course.update(what if course is None else f"{course}, {what}")
        return {"course": self.course.get()}


class Reminds(StatefulFunction):
    """Writes what has expired again, three times."""

    output = "times BIGINT"
    seen = ValueStateDescriptor("BIGINT")
    times = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        for change in rows:
            self.seen.update(change.row["seq"])
        yield {"times": 0}

    def on_expire(self, key, entry, ctx):
        times = (self.times.get() or 0) + 1
        self.times.update(times)
        if times < 3:
            self.seen.update(entry.value)
        yield {"times": times}


class Shortens(StatefulFunction):
    """Ends what it remembers before it writes it again."""

    output = "expired BIGINT"
    seen = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        for change in rows:
            self.seen.get(ttl=timedelta(milliseconds=1))
            self.seen.update(change.row["seq"])
        yield {"expired": None}

    def on_expire(self, key, entry, ctx):
        yield {"expired": entry.value}
