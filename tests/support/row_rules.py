"""Functions that tests call in SQL; `helper` and its module go along to the workers."""

from decimal import Decimal

import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import LongType, StringType
from row_rules_helper import shout


def twice(n: int) -> int | None:
    return None if n is None else 2 * n


def number(v: str) -> int:
    """Raises on what is no number."""
    return int(v)


def lies(v: str) -> int:
    """Does not return what it says."""
    return v


def parts(v: str) -> list[str]:
    return v.split(",")


def price(v: str) -> Decimal:
    return Decimal(v)


def by_length(v: str) -> int:
    if v == "c":
        raise ValueError("no length of 'c'")
    return len(v)


shouted = udf(shout, StringType())


@pandas_udf(LongType())
def pandas_number(v: pd.Series) -> pd.Series:
    return v.astype("int64")


@pandas_udf(LongType())
def total(v: pd.Series) -> int:
    return v.sum()


@arrow_udf(LongType())
def arrow_number(v: pa.Array) -> pa.Array:
    return v.cast(pa.int64())


@udf(StringType())
def _changing(v):
    return v


changing = _changing.asNondeterministic()


def untyped(v):
    return v


def of_a_set(v: str) -> set[str]:
    return set(v)
