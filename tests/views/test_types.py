"""Types of columns, and collations, that a view cannot have."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimeType,
    VariantType,
)

from ebbtide.errors import ViewQueryError
from ebbtide.views.refusals import refuse_collations, refuse_types


def columns(type_):
    return StructType([StructField("id", StringType()), StructField("v", type_)])


@pytest.mark.parametrize(
    "strange",
    [DayTimeIntervalType(), TimeType(), VariantType(), NullType(), StringType("UTF8_LCASE")],
    ids=["interval", "time", "variant", "void", "collation"],
)
@pytest.mark.parametrize(
    "around",
    [lambda type_: type_, ArrayType, lambda type_: MapType(StringType(), type_), columns],
    ids=["itself", "array", "map", "struct"],
)
def test_type_that_no_table_has_is_refused_by_name(strange, around):
    with pytest.raises(ViewQueryError, match="a type that no table has") as raised:
        refuse_types(columns(around(strange)))
    assert f"Got: v {strange.simpleString()}" in str(raised.value)


def test_types_of_tables_are_taken():
    inner = StructType([StructField("a", DecimalType(38, 18)), StructField("b", ArrayType(DateType()))])
    for type_ in (inner, DoubleType(), TimestampNTZType(), MapType(StringType(), inner)):
        refuse_types(columns(type_))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT y COLLATE UNICODE_CI FROM a",
        "SELECT collate(y, 'UTF8_LCASE') FROM a",
        "SELECT CAST(y AS STRING COLLATE X)",
    ],
)
def test_collation_is_refused(query):
    with pytest.raises(ViewQueryError, match="compares texts by a collation"):
        refuse_collations(query)


def test_collation_in_a_text_or_a_name_is_none():
    refuse_collations("SELECT 'COLLATE' AS `collate`, collated FROM a")
