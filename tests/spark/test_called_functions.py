"""Functions of Spark by name and their options by literal: one list, for SQL sessions, views and transforms; what is not in it is refused."""

import socket

import pytest
from clusters.spark_support import plain_spec

from ebbtide.errors import ConfigError, ViewQueryError
from ebbtide.expressions import Call, Parser
from ebbtide.runtime import Plan
from ebbtide.runtime._selection import expressions_of
from ebbtide.sessions import executor_of
from ebbtide.sqltext import SqlText
from ebbtide.views.query import analyse, new_session

CLAUSES = {"!=", "<>", "case", "||"}
"""Listed by SHOW ALL FUNCTIONS, and parsed as operators and clauses."""
OPTIONS_OF = {
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "xml": "org.apache.spark.sql.catalyst.xml.XmlOptions",
    "avro": "org.apache.spark.sql.avro.AvroOptions",
}
NOT_TAKEN = {
    "rowValidationXSDPath": "a file or a host, with all that its schema includes",
    "avroSchemaUrl": "a file or a host",
    "compression": "of files",
    "codec": "of files",
    "ignoreExtension": "of files",
    "extension": "of files",
    "columnPruning": "of scans",
    "useUnsafeRow": "of scans",
    "useLegacyXMLParser": "another parser, which was not looked at",
    "inputBufferSize": "of scans",
    "recordName": "of files",
    "recordNamespace": "of files",
}
"""Options of Spark's that may not be given, and why; further ones of another version are refused until they are looked at."""


@pytest.fixture(scope="module")
def session(spark):
    return new_session(spark)


@pytest.fixture(scope="module")
def parser(session):
    return Parser(session)


@pytest.fixture
def port():
    """A port where someone listens, and no one may call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()


def call_of(name, options):
    """Return a call with a map of options in its place."""
    before = ["v", "'a INT'"][: SqlText.SPARK.OPTIONS[name].position]
    return f"{name}({', '.join([*before, options])})"


def fault_of(parser, text):
    return Call.first_fault(parser, parser.expression(text))


def test_each_function_of_the_registry_is_listed_or_was_refused_for_a_reason(session, parser):
    registered = {row["function"] for row in session.sql("SHOW ALL FUNCTIONS").collect()}
    known = SqlText.SPARK.OF_VALUES | SqlText.SPARK.OF_TABLES | CLAUSES
    refused = frozenset().union(*SqlText.SPARK.REFUSED.values())
    assert registered - known == refused, "look at new functions, and list them in ebbtide/sqltext/_spark_functions.py"
    assert known <= registered
    assert parser.built_in_functions - known == refused - {"table_changes_by_path"}
    assert not known & refused


def test_function_that_is_not_listed_is_refused_by_default(parser, monkeypatch):
    assert fault_of(parser, "upper(v)") is None
    monkeypatch.setattr(SqlText.SPARK, "OF_VALUES", SqlText.SPARK.OF_VALUES - {"upper"})
    assert fault_of(parser, "lower(concat(UPPER(v)))").got == "upper(..)"
    assert fault_of(parser, "function_of_a_user(v)") is None


def spark_s_options(spark, kind):
    names = getattr(spark._jvm, OPTIONS_OF[kind]).getAllOptions().iterator()
    found = set()
    while names.hasNext():
        found.add(str(names.next()))
    return found


@pytest.mark.parametrize("kind", OPTIONS_OF)
def test_each_option_of_spark_is_listed_or_refused_for_a_reason(spark, parser, kind):
    functions = [name for name in SqlText.SPARK.OPTIONS if name.endswith(f"_{kind}")]
    assert len(functions) == 3
    options = spark_s_options(spark, kind)
    assert len(options) > 5
    known = sorted(options - NOT_TAKEN.keys())
    refused = sorted(options & NOT_TAKEN.keys() | {"path", "schemaLocation", "anOptionOfAnotherVersion"})
    for name in functions:
        all_known = ", ".join(f"'{option}', 'x'" for option in known)
        assert fault_of(parser, call_of(name, f"map({all_known})")) is None, name
        taken = [option for option in refused if fault_of(parser, call_of(name, f"map('{option}', 'x')")) is None]
        assert taken == [], name


COMPUTED = [
    "map('mode' || '', 'x')",
    "map(concat('rowValidation', 'XSDPath'), '/etc/passwd')",
    "map('mode', v)",
    "map(v, 'x')",
    "map_from_arrays(array('mode'), array('x'))",
    "map_concat(map('mode', 'x'), map('rowValidationXSDPath', '/etc/passwd'))",
    "other.map('mode', 'x')",
    "options",
    "str_to_map('rowValidationXSDPath:/etc/passwd')",
    "if(true, map('mode', 'x'), null)",
    "map('mode', 'x'), 1, 2",
]


@pytest.mark.parametrize("name", SqlText.SPARK.OPTIONS)
def test_options_are_literals(parser, name):
    for options in COMPUTED:
        assert fault_of(parser, call_of(name, options)) is not None, options
    for options in ("map('mode', 'FAILFAST')", "MAP()", "builtin.map('MODE', 'x')"):
        assert fault_of(parser, call_of(name, options)) is None or "mode" not in SqlText.SPARK.OPTIONS[name].names, (
            options
        )
    assert "position" in fault_of(parser, f"{name}(options => map('mode', 'x'))").allowed
    within = f"coalesce(transform(array(v), e -> {call_of(name, 'v')}), null)"
    assert fault_of(parser, within) is not None


def hostile(port):
    places = ("/etc/passwd", f"http://127.0.0.1:{port}/a.xsd")
    for place in places:
        yield f"from_xml(v, 'b STRING', map('rowValidationXSDPath', '{place}')).b"
        yield f"from_xml(v, schema_of_xml('<a/>', map('rowValidationXSDPath', '{place}'))).b"
        yield f"schema_of_xml('<a/>', map('rowvalidationxsdpath', '{place}'))"
        yield f"CAST(from_avro(CAST(v AS BINARY), '\"int\"', map('avroSchemaUrl', '{place}')) AS STRING)"
    yield "reflect('java.lang.System', 'getenv', 'HOME')"
    yield "CAST(to_protobuf(struct(v), 'A', '/etc/passwd') AS STRING)"


def test_view_refuses_them_before_spark_analyses_it(session, port):
    for expression in hostile(port):
        with pytest.raises(ViewQueryError, match="is not allowed"):
            analyse(session, f"SELECT {expression} AS v FROM VALUES ('<a><b>1</b></a>') AS t(v)", {})


def test_transform_refuses_them_before_spark_analyses_it(spark, tmp_path, port):
    # `reflect` does not follow from the row, and is refused as the spec is read.
    for expression in [each for each in hostile(port) if not each.startswith("reflect")]:
        transform = {"select": {"id": "id", "v": expression}, "schema": "id BIGINT, v STRING", "key": ["id"]}
        plan = Plan.under(str(tmp_path / "root"), plain_spec(tmp_path, transform=transform))
        with pytest.raises(ConfigError, match=r"transform\.select\.v"):
            expressions_of(executor_of(spark), plan).refuse_unfit()


def test_document_with_external_entities_reaches_no_one(spark, parser, port):
    """Of the listed functions that parse XML, the values of records are the documents."""
    entity = f'<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:{port}/x"><!ENTITY f SYSTEM "file:///etc/passwd">]><a><b>&x;&f;</b></a>'
    external = f'<!DOCTYPE a SYSTEM "http://127.0.0.1:{port}/x.dtd"><a><b>1</b></a>'
    parameter = f'<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1:{port}/p"> %p;]><a><b>1</b></a>'
    rows = spark.createDataFrame([(document,) for document in (entity, external, parameter)], "v STRING")
    values = rows.selectExpr("from_xml(v, 'b STRING').b AS b").collect()
    assert [row.b for row in values] == [None, "1", "1"]
    # The document type of `external` would be fetched.
    assert fault_of(parser, "xpath_string(v, 'a/b')").got == "xpath_string(..)"
