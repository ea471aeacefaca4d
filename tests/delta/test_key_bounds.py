"""A key that is in a file is never left out by the file's bounds, of any writer; and bounds leave keys out."""

import json
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.delta import DataFile, Definition, KeyBounds, Snapshot
from ebbtide.delta._key_bounds import exact_part
from ebbtide.delta._statistics import statistics
from ebbtide.ledger import writer_of

LAST_CHARACTER = "\U0010ffff"


CHARACTERS = "\0ab~\x7fé\ud7ff\ue000\ufffd\uffff\U00010000\U0001f6a2\U0010ffff"
"""Those at which the orders of UTF-8 and UTF-16 differ, the greatest of each length, and those that writers append."""


@st.composite
def texts(draw):
    """Texts that begin alike, and differ before or behind the places at which writers cut; those of a file, and further ones."""
    beginning = draw(st.sampled_from(["a", "\U0001f6a2"])) * draw(st.sampled_from([0, 1, 15, 16, 28, 31, 32, 33]))
    ends = st.text(CHARACTERS, max_size=6)
    stored = draw(st.lists(ends, min_size=1, max_size=4))
    further = draw(st.lists(ends, max_size=2))
    return [beginning + end for end in stored], [beginning + end for end in further]


def in_bytes(values):
    """The values in the order of their UTF-8 bytes."""
    return sorted(values, key=str.encode)


def by_us(values):
    stats = json.loads(statistics(pa.table({"k": values}), ["k"]))
    return stats["minValues"].get("k"), stats["maxValues"].get("k")


def by_spark(values):
    """Cut at 32 characters, the greatest with a last character."""
    least, *_, greatest = [*in_bytes(values), *in_bytes(values)]
    return least[:32], greatest if len(greatest) <= 32 else greatest[:32] + "\U0010ffff"


def by_utf_16(values):
    """Cut at 32 units of UTF-16 and followed by U+FFFD, as older releases of Delta's library for Spark wrote bounds."""

    def cut(text):
        return text.encode("utf-16-le")[:64].decode("utf-16-le", errors="replace")

    least, *_, greatest = [*in_bytes(values), *in_bytes(values)]
    return cut(least), greatest if cut(greatest) == greatest else cut(greatest) + "\ufffd"


def without_a_last_character(values):
    least, *_, greatest = [*in_bytes(values), *in_bytes(values)]
    return least[:32], greatest[:32]


def file_of(bounds):
    """A file with these bounds, as they are read from the log."""
    least, greatest = [{} if bound is None else {"k": bound} for bound in bounds]
    return DataFile({"path": "f", "size": 1, "stats": json.dumps({"minValues": least, "maxValues": greatest})})


@pytest.mark.parametrize("bounds_of", [by_us, by_spark, by_utf_16, without_a_last_character])
def test_no_text_of_a_file_is_left_out(bounds_of):
    @given(texts())
    def holds(drawn):
        stored, further = drawn
        may_hold = KeyBounds(pa.table({"k": stored + further})).may_hold(file_of(bounds_of(stored)))
        assert may_hold[: len(stored)].all()

    holds()


DIGITS = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(2**54), 2**54)


def exactly(values):
    return min(values), max(values)


def as_doubles(values):
    return float(min(values)), float(max(values))


@pytest.mark.parametrize("bounds_of", [by_us, exactly, as_doubles])
@pytest.mark.parametrize("scale", [0, 2, 38])
def test_no_decimal_of_a_file_is_left_out(bounds_of, scale):
    @given(st.lists(DIGITS, min_size=1, max_size=5))
    def holds(digits):
        values = pa.table({"k": pa.array([Decimal(f"{each}E-{scale}") for each in digits], pa.decimal128(38, scale))})
        bounds = bounds_of(values["k"] if bounds_of is by_us else values["k"].to_pylist())
        text = json.dumps({"minValues": {"k": "least"}, "maxValues": {"k": "greatest"}})
        for name, bound in zip(("least", "greatest"), bounds, strict=True):
            text = text.replace(f'"{name}"', "null" if bound is None else str(bound))
        file = DataFile({"path": "f", "size": 1, "stats": text})
        assert KeyBounds(values).may_hold(file).all()

    holds()


@pytest.mark.parametrize(
    ("stored", "left_out"),
    [
        (["order-0100", "order-0199"], ["order-0099", "order-0200", "order-02", "a", "z", ""]),
        (["0190a1b2-7cc0-7000-8000-00000000000a"], ["0190a1b1-7cc0-7000-8000-00000000000a", "0190a1b3"]),
        ([Decimal("10.50"), Decimal("19.75")], [Decimal("9.99"), Decimal("20.01"), Decimal("-10.50")]),
        ([10, 19], [9, 20, -(2**63), 2**63 - 1]),
    ],
    ids=["texts", "longer texts", "decimals", "integers"],
)
def test_keys_beyond_the_bounds_of_a_file_are_left_out(stored, left_out):
    file = DataFile({"path": "f", "size": 1, "stats": statistics(pa.table({"k": stored}), ["k"])})
    wanted = pa.table({"k": pa.array([*stored, *left_out], pa.array(stored).type)})
    assert KeyBounds(wanted).may_hold(file).tolist() == [True] * len(stored) + [False] * len(left_out)


@pytest.mark.parametrize(
    ("bounds", "may_hold"),
    [
        ((1, 4), []),
        ((1, 5), [5]),
        ((6, 8), []),
        ((6, 9), [9]),
        ((1, 20), [5, 9]),
        ((None, 4), []),
        ((None, 5), [5]),
        ((9, None), [9]),
    ],
)
def test_bounds_are_included_and_either_may_be_unknown(bounds, may_hold):
    wanted = pa.table({"k": [5, 9]})
    is_held = KeyBounds(wanted).may_hold(file_of(bounds))
    assert wanted.filter(pa.array(is_held))["k"].to_pylist() == may_hold


def test_each_column_of_a_key_leaves_keys_out():
    file = DataFile({"path": "f", "size": 1, "stats": statistics(pa.table({"a": [1, 2], "b": ["x", "y"]}), ["a", "b"])})
    wanted = pa.table({"a": [1, 1, 3], "b": ["x", "z", "x"]})
    assert KeyBounds(wanted).may_hold(file).tolist() == [True, False, False]


def test_a_column_with_nulls_leaves_none_out_and_the_next_one_does():
    file = DataFile({"path": "f", "size": 1, "stats": statistics(pa.table({"a": [1, 2], "b": ["x", "y"]}), ["a", "b"])})
    wanted = pa.table({"a": [None, 3], "b": ["x", "z"]})
    assert KeyBounds(wanted).may_hold(file).tolist() == [True, False]


@pytest.mark.parametrize("bounds", [("aa", "zz"), ("aa", "ab"), ("ab", "ab")])
def test_text_that_is_all_that_the_texts_have_in_common_is_held_between_the_bounds(bounds):
    assert KeyBounds(pa.table({"k": ["ab"]})).may_hold(file_of(bounds)).all()


@pytest.mark.parametrize(
    ("bound", "n_characters"),
    [
        ("x" * 31, 31),
        ("x" * 32, 31),
        ("\uffff" * 31, 31),
        ("\uffff" * 32, 31),
        ("\U00010000" * 15, 15),
        ("\U00010000" * 16, 15),
        ("x" * 29 + "\U00010000", 30),
        ("x" * 30 + "\U00010000", 30),
    ],
)
def test_part_of_a_bound_that_no_writer_cuts_has_31_units_of_utf_16(bound, n_characters):
    assert exact_part(bound) == bound[:n_characters]


@pytest.mark.parametrize(
    "values",
    [["a", None], [1, None], [True], [1.5], [b"a"], [Decimal("1.5"), None]],
    ids=["text", "integer", "bool", "float", "bytes", "decimal"],
)
def test_nulls_and_values_without_an_order_in_json_are_in_any_file(values):
    file = file_of((2, 3))
    assert KeyBounds(pa.table({"k": values})).may_hold(file).all()


@pytest.mark.parametrize("bounds", [(None, None), (True, True), ("a", 1.5), ([1], {})])
def test_bounds_of_another_type_leave_nothing_out(bounds):
    assert KeyBounds(pa.table({"k": [5]})).may_hold(file_of(bounds)).all()
    assert KeyBounds(pa.table({"k": ["5"]})).may_hold(file_of((None, bounds[1]))).all()


def test_no_keys_are_in_no_file():
    for type_ in (pa.int64(), pa.string(), pa.decimal128(9, 2)):
        keys = pa.table({"k": pa.array([], type_)})
        assert not len(KeyBounds(keys).may_hold(file_of((1, 2))))


def test_keys_of_files_of_delta_rs_are_not_left_out(tmp_path):
    chance = random.Random(7)
    table = str(tmp_path / "t")
    for _ in range(12):
        write_deltalake(table, pa.table(random_columns(chance, 4)), mode="append")
    assert_nothing_left_out(table)


def random_columns(chance, n_rows):
    """Texts around the length of 32 characters and of 64 bytes, and decimals."""
    lengths = [chance.choice([1, 20, 31, 32, 33, 63, 64, 65, 90]) for _ in range(n_rows)]
    alphabets = ["ab", CHARACTERS.replace("\0", ""), "é", "\U0001f6a2\U0010ffff"]
    names = ["".join(chance.choices(chance.choice(alphabets), k=length)) for length in lengths]
    digits = [chance.randrange(-(10**38) + 1, 10**38) for _ in range(n_rows)]
    amounts = [Decimal(f"{each}E-3") for each in digits]
    return {"name": names, "amount": pa.array(amounts, pa.decimal128(38, 3))}


def assert_nothing_left_out(table):
    """Each file is known to hold what it holds; and not all bounds are missing."""
    snapshot = Snapshot.read(table)
    columns = pa.schema([("name", pa.string()), ("amount", pa.decimal128(38, 3))])
    n_bounds = 0
    for file in snapshot.files.values():
        rows = file.read(table, columns)
        for name in columns.names:
            assert KeyBounds(rows.select([name])).may_hold(file).all(), (name, file.stats)
            n_bounds += file.greatest(name) is not None
    assert n_bounds


def test_last_character_ends_a_text_that_is_cut_unless_it_may_follow_itself():
    assert by_us(["x" * 33]) == ("x" * 32, "x" * 32 + LAST_CHARACTER)
    assert by_us(["x" * 32 + LAST_CHARACTER]) == ("x" * 32, None)


@pytest.mark.grid  # `by_spark` cuts as Spark does
@pytest.mark.spark
def test_keys_of_files_of_spark_are_not_left_out(spark, tmp_path):
    chance = random.Random(7)
    table = str(tmp_path / "t")
    rows = pa.table(random_columns(chance, 64)).to_pylist()
    written = spark.createDataFrame(rows, "name STRING, amount DECIMAL(38, 3)").repartition(16)
    written.write.format("delta").save(table)
    assert_nothing_left_out(table)


@pytest.mark.spark
def test_spark_finds_the_rows_of_a_file_by_our_bounds(spark, tmp_path):
    table = str(tmp_path / "t")
    columns = pa.schema([("name", pa.string()), ("amount", pa.decimal128(4, 2))])
    rows = pa.table({"name": ["b" * 40, "x" * 40], "amount": [Decimal("1.25"), Decimal("99.75")]}, columns)
    writer_of(table).create(table, Definition(columns), name="t", info={})
    add = DataFile.write(table, "f.parquet", rows, bounded=columns.names)
    assert writer_of(table).commit(Snapshot.read(table), [add], {"operation": "WRITE"})
    read = spark.read.format("delta").load(table)
    for name in columns.names:
        for value in rows[name].to_pylist():
            assert len(read.where(read[name] == value).collect()) == 1
