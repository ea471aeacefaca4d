from decimal import Decimal

import pyarrow as pa
import pytest

from ebbtide.ddl import SparkSql, added_ddl, as_written, ddl_of, parse_ddl
from ebbtide.errors import ConfigError

TYPES = [
    ("BOOLEAN", pa.bool_()),
    ("TINYINT", pa.int8()),
    ("SMALLINT", pa.int16()),
    ("INT", pa.int32()),
    ("INTEGER", pa.int32()),
    ("BIGINT", pa.int64()),
    ("LONG", pa.int64()),
    ("FLOAT", pa.float32()),
    ("DOUBLE", pa.float64()),
    ("DECIMAL", pa.decimal128(10, 0)),
    ("DECIMAL(7)", pa.decimal128(7, 0)),
    ("DECIMAL(38, 38)", pa.decimal128(38, 38)),
    ("NUMERIC(12,2)", pa.decimal128(12, 2)),
    ("STRING", pa.string()),
    ("BINARY", pa.binary()),
    ("DATE", pa.date32()),
    ("TIMESTAMP", pa.timestamp("us", "UTC")),
    ("TIMESTAMP_NTZ", pa.timestamp("us")),
    ("ARRAY<STRING>", pa.list_(pa.string())),
    ("MAP<STRING, DATE>", pa.map_(pa.string(), pa.date32())),
    ("STRUCT<a: INT, b: DECIMAL(3,1)>", pa.struct([("a", pa.int32()), ("b", pa.decimal128(3, 1))])),
    ("ARRAY<STRUCT<m: MAP<INT, ARRAY<BIGINT>>>>", pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.int64())))]))),
]  # fmt: skip


@pytest.mark.parametrize("case", [str.upper, str.lower])
@pytest.mark.parametrize(("text", "type_"), TYPES, ids=[text for text, _ in TYPES])
def test_type_becomes_its_arrow_type(text, type_, case):
    if "STRUCT" in text and case is str.upper:
        case = str  # a field's name keeps its case
    assert parse_ddl(f"c {case(text)}").columns == pa.schema([("c", type_)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'basic'", "basic"),
        ("''", ""),
        ("'it''s'", "it's"),
        ("\"say 'it'\"", "say 'it'"),
        ("'a, b) NOT NULL'", "a, b) NOT NULL"),
        ("'-1'", "-1"),
        ("0", 0),
        ("-7", -7),
        ("9223372036854775808", 2**63),
        ("1.50", Decimal("1.50")),
        ("-0.000000000000000000001", Decimal("-0.000000000000000000001")),
        ("1e3", Decimal("1e3")),
        ("TRUE", True),
        ("false", False),
        ("NULL", None),
    ],
)
def test_default_becomes_the_value_that_a_record_would_carry(text, value):
    table = parse_ddl(f"id BIGINT, c STRING DEFAULT {text}, d INT")
    assert table.defaults == {"c": value}
    assert type(table.defaults["c"]) is type(value)
    assert table.columns.names == ["id", "c", "d"]


@pytest.mark.parametrize(
    ("text", "nullable", "defaults", "comments"),
    [
        ("c INT", True, {}, {}),
        ("c INT NULL", True, {}, {}),
        ("c INT NOT NULL", False, {}, {}),
        ("c INT COMMENT 'how many, it\\'s said'", True, {}, {"c": "how many, it's said"}),
        ("c STRING DEFAULT 'it''s' COMMENT 'it''s \"a\"'", True, {"c": "it's"}, {"c": 'it\'s "a"'}),
        ("c INT NOT NULL DEFAULT 3 COMMENT 'x'", False, {"c": 3}, {"c": "x"}),
        ("c INT DEFAULT 3 COMMENT 'x' NOT NULL", False, {"c": 3}, {"c": "x"}),
    ],
)
def test_constraints_in_any_order_are_read(text, nullable, defaults, comments):
    table = parse_ddl(text)
    assert (table.columns.field("c").nullable, table.defaults, table.comments) == (nullable, defaults, comments)


def test_names_are_kept_as_written():
    ddl = "Id BIGINT, -- the key\n `odd name` INT,\n date DATE, `grün` INT"
    assert parse_ddl(ddl).columns.names == ["Id", "odd name", "date", "grün"]


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "(no columns|not column DDL)"),
        ("id", "(not a column|not column DDL)"),
        ("id BIGINT) USING parquet COMMENT ('x'", "not column DDL"),
        ("id BIGINT); SELECT (1", "not column DDL"),
        ("id BIGINT) AS SELECT (1", "not column DDL"),
        ("id BIGINT, id INT", "names a column twice.*Got: id"),
        ("id BIGINT, ID INT", "names a column twice.*Got: ID"),
        ("id BIGINT, PRIMARY KEY (id)", "not a column.*PRIMARY KEY"),
        ("id BIGINT PRIMARY KEY", "constraint that is not supported.*Allowed: NOT NULL, DEFAULT, COMMENT"),
        ("id BIGINT GENERATED ALWAYS AS IDENTITY", "constraint that is not supported"),
        ("c VARCHAR(10)", "type that is not supported"),
        ("c CHAR(10)", "type that is not supported"),
        ("c INTERVAL DAY", "(type that is not supported|not column DDL)"),
        ("c VARIANT", "type that is not supported"),
        ("c DECIMAL(39,2)", r"type that is not supported.*Got: DECIMAL\(39, 2\)"),
        ("c DECIMAL(4,5)", "type that is not supported"),
        ("c DECIMAL(0)", "type that is not supported"),
        ("c ARRAY<CHAR(3)>", "type that is not supported"),
        ("c ARRAY", "type that is not supported"),
        ("c MAP<STRING>", "(type that is not supported|not column DDL)"),
        ("c NONSENSE", "(type that is not supported|not column DDL)"),
        ("c INT DEFAULT now()", "DEFAULT is not a literal"),
        ("c INT DEFAULT 1 + 1", "DEFAULT is not a literal"),
        ("c INT DEFAULT -'1'", "DEFAULT is not a literal"),
        ("c DATE DEFAULT DATE '2024-01-01'", "DEFAULT is not a literal"),
    ],
)
def test_ddl_that_is_not_supported_is_refused(ddl, message):
    with pytest.raises(ConfigError, match=message):
        parse_ddl(ddl)


def words():
    """Every word that a part of SQL has a use for: keywords, constraints, types, functions."""
    sources = (
        SparkSql.Tokenizer.KEYWORDS,
        SparkSql.Parser.CONSTRAINT_PARSERS,
        SparkSql.Parser.SCHEMA_UNNAMED_CONSTRAINTS,
        SparkSql.Parser.PROPERTY_PARSERS,
        SparkSql.Parser.FUNCTIONS,
        SparkSql.Parser.NO_PAREN_FUNCTION_PARSERS,
    )
    return sorted({word.lower() for source in sources for word in source if word.isidentifier()})


def test_word_of_sql_is_written_so_that_it_reads_as_a_name_wherever_it_stands():
    names = words()
    assert {"select", "case", "like", "unique", "check"} <= {*names}
    columns = [f"{as_written(name)} STRUCT<{as_written(name)}: INT>" for name in names]

    read = parse_ddl(",\n".join(columns)).columns

    assert read.names == names
    assert [field.type.names for field in read] == [[name] for name in names]


@pytest.mark.parametrize(
    "name", ["order-id", "a.b", "Größe", "x y", "tick`s", "`", "semi;colon", "{brace}", 'say "x"', "it's", "1st"]
)
def test_name_of_any_characters_comes_back_from_the_schema_that_it_is_written_to(name):
    assert parse_ddl(f"{as_written(name)} INT").columns.names == [name]
    assert parse_ddl(
        ddl_of(parse_ddl(f"{as_written(name)} STRUCT<{as_written(name)}: INT>").columns)
    ).columns.names == [name]
    assert parse_ddl(", ".join(added_ddl({name: "INT"}))).columns.names == [name]
