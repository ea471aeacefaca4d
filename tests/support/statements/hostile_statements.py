"""Statements that a session must not execute: those that only readers may not, and those that reach what a pipeline owns.

`{sink}` is a pipeline's table, `{root}` the folder of all, `{home}` a folder beside, `{port}` one where somebody listens.
"""

from collections.abc import Iterator

CHANGES = (
    "DELETE FROM {table}",
    "DELETE FROM {table} AS a WHERE a.id = 1",
    "UPDATE {table} AS a SET v = 'x' WHERE a.id = 1",
    "UPDATE {table} SET v = 'x'",
    "INSERT INTO {table} VALUES (9, 'x', 9)",
    "INSERT OVERWRITE {table} SELECT 9, 'x', 9",
    "INSERT INTO TABLE {table} REPLACE WHERE id = 1 SELECT 1, 'x', 9",
    "WITH q AS (SELECT 9, 'x', 9) INSERT INTO {table} SELECT * FROM q",
    "WITH q AS (SELECT 1 AS id) DELETE FROM {table} WHERE id IN (SELECT id FROM q)",
    "FROM VALUES (9, 'x', 9) INSERT INTO {table} SELECT * INSERT INTO {table} SELECT *",
    "MERGE INTO {table} t USING (SELECT 1 AS i) s ON t.id = s.i WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {table}",
    "DROP TABLE {table}",
    "ALTER TABLE {table} ADD COLUMNS (w INT)",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "ALTER TABLE {table} DROP COLUMN v",
    "ALTER TABLE {table} ADD CONSTRAINT c CHECK (id < 0)",
    "OPTIMIZE {table}",
    "OPTIMIZE {table} ZORDER BY (id)",
    "VACUUM {table}",
    "VACUUM {table} RETAIN 200 HOURS",
    "RESTORE TABLE {table} TO VERSION AS OF 0",
    "REORG TABLE {table} APPLY (PURGE)",
    "GENERATE symlink_format_manifest FOR TABLE {table}",
    "COMMENT ON TABLE {table} IS 'mine'",
    'EXECUTE IMMEDIATE "DELETE FROM {table}"',
    "EXECUTE IMMEDIATE \"EXECUTE IMMEDIATE 'DELETE FROM {table}'\"",
    'EXECUTE IMMEDIATE "DELETE FROM {table} WHERE id = ?" USING 1',
    "BEGIN DELETE FROM {table}; END",
    "BEGIN IF 1 = 1 THEN VACUUM {table}; END IF; END",
    "BEGIN SELECT 1; WHILE 1 = 0 DO TRUNCATE TABLE {table}; END WHILE; END",
    "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN DELETE FROM {table}; END; SELECT raise_error('x'); END",
    'EXPLAIN EXECUTE IMMEDIATE "DELETE FROM {table}"',
    "EXPLAIN EXTENDED DELETE FROM {table}",
)
"""Each changes a table."""
TABLES = (
    "kept",
    "default.kept",
    "spark_catalog.default.kept",
    "delta.`{sink}`",
    "delta.`{linked}`",
    "DELTA.`FILE:{sink}`",
)
FURTHER_TABLES = (
    "delta.`file://{sink}`",
    "delta.`{sink}/../sink`",
    "delta.`{sink}/`",
    "spark_catalog.delta.`{sink}`",
    "parquet.`{sink}`",
    "delta.`{root}/kept/state`",
    "delta.`{root}/kept/ledger`",
    "IDENTIFIER('delta.`{sink}`')",
)
FOLDERS = (
    "CREATE TABLE mine (id BIGINT) USING delta LOCATION '{sink}'",
    "CREATE OR REPLACE TABLE mine USING delta LOCATION '{sink}' AS SELECT 1 AS id",
    "CREATE OR REPLACE TABLE mine USING delta LOCATION '{linked}' AS SELECT 1 AS id",
    "CREATE TABLE mine (id BIGINT) USING parquet OPTIONS (path '{sink}')",
    "CREATE TABLE mine USING delta LOCATION 'file://{root}/mine' AS SELECT 1 AS id",
    "CREATE TABLE mine LIKE kept LOCATION '{root}/mine'",
    "CREATE TABLE mine SHALLOW CLONE delta.`{sink}` LOCATION '{root}/mine'",
    "CREATE OR REPLACE TABLE delta.`{sink}` SHALLOW CLONE delta.`{root}/kept/state`",
    "CREATE OR REPLACE TABLE delta.`{sink}` AS SELECT 1 AS id",
    "CREATE DATABASE mine LOCATION '{root}/kept'",
    "ALTER DATABASE default SET LOCATION '{root}'",
    "INSERT OVERWRITE DIRECTORY '{sink}' USING parquet SELECT 1 AS id",
    "INSERT OVERWRITE DIRECTORY '{root}' USING parquet SELECT 1 AS id",
    "INSERT OVERWRITE DIRECTORY '{root}/..' USING parquet SELECT 1 AS id",
    "INSERT OVERWRITE DIRECTORY USING parquet OPTIONS (path '{sink}') SELECT 1 AS id",
    "CONVERT TO DELTA parquet.`{sink}`",
    "OPTIMIZE '{sink}'",
    "VACUUM '{sink}' RETAIN 0 HOURS",
    "VACUUM '{root}/kept'",
    "DELETE FROM IDENTIFIER('delta.' || '`{sink}`')",
    "EXECUTE IMMEDIATE 'DELETE FROM delta.' || '`{sink}`'",
    "BEGIN DECLARE s STRING DEFAULT 'DELETE FROM delta.`{sink}`'; EXECUTE IMMEDIATE s; END",
    "EXECUTE IMMEDIATE 'DELETE FROM IDENTIFIER(?)' USING 'delta.`{sink}`'",
    "EXECUTE IMMEDIATE 'DELETE FROM IDENTIFIER(:t)' USING 'delta.`{sink}`' AS t",
)
"""Each gives a folder that pipelines own to a command."""
READERS = (
    "EXPLAIN EXECUTE IMMEDIATE 'CREATE TABLE mine (id INT) USING delta'",
    "EXPLAIN FORMATTED EXECUTE IMMEDIATE 'CREATE DATABASE mine'",
    "EXPLAIN EXPLAIN EXECUTE IMMEDIATE 'CREATE DATABASE mine'",
    "EXPLAIN SELECT TRANSFORM(1) USING 'touch {home}/came'",
    "EXPLAIN CREATE TABLE mine (id INT, PRIMARY KEY (id))",
    "SELECT TRANSFORM(1) USING 'touch {home}/came'",
    "SELECT TRANSFORM(id) USING 'sh -c \"touch {home}/came\"' AS x FROM kept",
    "FROM kept SELECT TRANSFORM(id) USING r'touch {home}/came' AS x",
    "FROM kept MAP id USING 'touch {home}/came' AS x",
    "FROM kept REDUCE id USING 'touch {home}/came' AS x",
    "SELECT * FROM (SELECT TRANSFORM(id) USING 'touch {home}/came' FROM kept)",
    "WITH q AS (SELECT TRANSFORM(1) USING 'touch {home}/came') SELECT * FROM q",
    "SELECT (SELECT count(*) FROM (SELECT TRANSFORM(1) USING 'touch {home}/came'))",
    "SELECT * FROM kept WHERE id IN (SELECT TRANSFORM(1) USING 'touch {home}/came')",
    "SELECT * FROM kept WHERE EXISTS (SELECT TRANSFORM(1) USING 'touch {home}/came')",
    "SELECT reflect('java.lang.System', 'exit', 3)",
    "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
    "SELECT try_reflect('java.lang.System', 'getProperty', 'user.home')",
    "SELECT `REFLECT`('java.lang.System', 'getenv', 'HOME')",
    "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT builtin.reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'HOME')",
    "SELECT IDENTIFIER('refl' || 'ect')('java.lang.System', 'getenv', 'HOME')",
    "SELECT * FROM kept ORDER BY reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT * FROM kept LIMIT length(reflect('java.lang.System', 'getenv', 'HOME'))",
    "SELECT transform(array(1), e -> reflect('java.lang.System', 'getenv', 'HOME'))",
    "SELECT count(*) FILTER (WHERE reflect('java.lang.System', 'getenv', 'HOME') = '') FROM kept",
    "SELECT max(id) OVER (PARTITION BY reflect('java.lang.System', 'getenv', 'HOME')) FROM kept",
    "VALUES (reflect('java.lang.System', 'getenv', 'HOME'))",
    "SELECT * FROM kept a JOIN kept b ON reflect('java.lang.System', 'getenv', 'HOME') = 'x'",
    "SELECT * FROM kept LATERAL VIEW explode(array(reflect('java.lang.System', 'getenv', 'HOME'))) AS e",
    "FROM kept |> WHERE reflect('java.lang.System', 'getenv', 'HOME') = ''",
    "FROM kept |> EXTEND java_method('java.lang.System', 'getenv', 'HOME') AS e",
    "DESCRIBE QUERY SELECT reflect('java.lang.System', 'getenv', 'HOME')",
    "EXPLAIN SELECT reflect('java.lang.System', 'getenv', 'HOME')",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM TEXT.`file:///etc/passwd`",
    "SELECT * FROM csv.`/etc/passwd`",
    "SELECT * FROM json.`/etc/passwd`",
    "SELECT * FROM binaryFile.`/etc/passwd`",
    "SELECT * FROM parquet.`{sink}`",
    "SELECT * FROM orc.`{home}`",
    "SELECT * FROM xml.`/etc/passwd`",
    "SELECT * FROM delta.`{sink}`",
    "SELECT * FROM delta.`{sink}@v0`",
    "SELECT * FROM delta.`{sink}` VERSION AS OF 0",
    "SELECT * FROM spark_catalog.delta.`{sink}`",
    "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
    "SELECT * FROM IDENTIFIER('text.' || '`/etc/passwd`')",
    "SELECT * FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`/etc/passwd`",
    "SELECT * FROM `org.apache.spark.sql.execution.datasources.v2.text.TextDataSourceV2`.`/etc/passwd`",
    "TABLE text.`/etc/passwd`",
    "FROM text.`/etc/passwd`",
    "SELECT (SELECT max(value) FROM text.`/etc/passwd`)",
    "SELECT * FROM kept WHERE v IN (SELECT value FROM text.`/etc/passwd`)",
    "WITH q AS (TABLE text.`/etc/passwd`) SELECT * FROM q",
    "SELECT 1 UNION ALL SELECT value FROM text.`/etc/passwd`",
    "SELECT * FROM kept, LATERAL (SELECT * FROM text.`/etc/passwd`)",
    "DESCRIBE text.`/etc/passwd`",
    "DESCRIBE TABLE EXTENDED delta.`{sink}`",
    "DESCRIBE HISTORY delta.`{sink}`",
    "DESCRIBE HISTORY '{sink}'",
    "DESCRIBE DETAIL '{sink}'",
    "DESCRIBE DETAIL delta.`{sink}`",
    "SHOW COLUMNS IN delta.`{sink}`",
    "SHOW TBLPROPERTIES delta.`{sink}`",
    "SHOW CREATE TABLE delta.`{sink}`",
    "EXPLAIN SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM jdbc.`jdbc:derby:{home}/came;create=true`",
    "SELECT * FROM kept WITH ('path' = '/etc/passwd')",
    "SELECT * FROM STREAM delta.`{sink}`",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT * FROM table_changes_by_path('{sink}', 0)",
    "SELECT * FROM table_changes('delta.`{sink}`', 0)",
    "SELECT * FROM table_changes('del' || 'ta.`{sink}`', 0)",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM remote_query('x')",
    "SELECT * FROM http_get('http://127.0.0.1:{port}/')",
    "SELECT from_protobuf(x'00', 'A', '/etc/passwd')",
    "SELECT from_xml('<a><b>1</b></a>', 'b STRING', map('rowValidationXSDPath', '/etc/passwd'))",
    "SELECT from_xml('<a/>', 'b STRING', map('ROWVALIDATIONXSDPATH', 'http://127.0.0.1:{port}/a.xsd'))",
    "SELECT from_xml('<a/>', 'b STRING', map('mode', 'FAILFAST', 'rowValidation' || 'XSDPath', '/etc/passwd'))",
    "SELECT from_xml('<a/>', 'b STRING', o) FROM (SELECT map('rowValidationXSDPath', '/etc/passwd') AS o)",
    "SELECT from_xml('<a/>', schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd')))",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', 'http://127.0.0.1:{port}/a.xsd'))",
    "SELECT from_avro(x'00', '\"int\"', map('avroSchemaUrl', 'http://127.0.0.1:{port}/a.avsc'))",
    "SELECT from_json('{{}}', 'a INT', map('path', '/etc/passwd'))",
    "SELECT xpath_string('<!DOCTYPE a SYSTEM \"http://127.0.0.1:{port}/a.dtd\"><a>1</a>', 'a')",
    "SELECT unknown_function(1)",
    "SELECT default.unknown_function(1)",
    "ADD JAR '{home}/x.jar'",
    "ADD JAR 'http://127.0.0.1:{port}/x.jar'",
    "ADD FILE 'http://127.0.0.1:{port}/x'",
    "ADD ARCHIVE '{home}/x.zip'",
    "LIST JARS",
    "CREATE TABLE mine (id INT) USING delta",
    "CREATE TABLE mine AS SELECT 1 AS id",
    "CREATE TABLE mine (id INT, PRIMARY KEY (id))",
    "CREATE TABLE mine USING jdbc OPTIONS (url 'jdbc:derby:{home}/came;create=true', dbtable 'x')",
    "CREATE TABLE mine USING csv LOCATION '/etc'",
    "CREATE DATABASE mine",
    "CREATE DATABASE mine LOCATION '{home}/came'",
    "CREATE VIEW mine AS SELECT 1",
    "CREATE TEMPORARY VIEW mine AS SELECT 1",
    "CREATE TEMPORARY VIEW mine USING text OPTIONS (path '/etc/passwd')",
    "CREATE GLOBAL TEMPORARY VIEW mine AS SELECT 1",
    "CREATE FUNCTION mine AS 'java.lang.Runtime'",
    "CREATE TEMPORARY FUNCTION mine AS 'org.apache.hadoop.hive.ql.udf.UDFLength'",
    "CREATE FUNCTION mine(x INT) RETURNS INT RETURN x",
    "CREATE TEMPORARY FUNCTION mine() RETURNS STRING RETURN reflect('java.lang.System', 'getenv', 'HOME')",
    "CREATE MATERIALIZED VIEW mine AS SELECT id FROM kept",
    "CREATE SOURCE mine (id INT, PRIMARY KEY (id)) WITH (path = '/etc')",
    "DECLARE mine INT",
    "DECLARE VARIABLE mine STRING DEFAULT reflect('java.lang.System', 'getenv', 'HOME')",
    "SET VAR mine = 1",
    "CACHE TABLE mine AS SELECT 1",
    "CACHE TABLE kept",
    "REFRESH TABLE kept",
    "REFRESH '{root}'",
    "ANALYZE TABLE kept COMPUTE STATISTICS",
    "MSCK REPAIR TABLE kept",
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE kept",
    "INSERT OVERWRITE DIRECTORY '{home}/came' USING csv SELECT 1",
    "INSERT OVERWRITE LOCAL DIRECTORY '{home}/came' SELECT 1",
    "USE default",
    "USE DATABASE default",
    "SET CATALOG spark_catalog",
    "SET TIME ZONE 'UTC'",
    "CALL system.mine()",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "EXECUTE IMMEDIATE 'SELECT ' || '1'",
    "EXECUTE IMMEDIATE 'SET spark.sql.variable.substitute = true'",
    "BEGIN SELECT 1; END",
    "BEGIN SET spark.sql.variable.substitute = true; END",
    "BEGIN DECLARE x INT DEFAULT 1; SELECT x; END",
    "BEGIN CREATE TABLE mine (id INT) USING delta; END",
    "DROP VIEW kept",
    "DROP DATABASE default CASCADE",
    "CREATE FLOW mine AS INSERT INTO kept SELECT 1",
    "CREATE STREAMING TABLE mine AS SELECT 1",
    "DFS -ls /",
)
"""Refused in a session that only reads."""
CALLING = (
    "SELECT TRANSFORM(1) USING 'touch {home}/came'",
    "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
    "CREATE TEMPORARY VIEW mine AS SELECT reflect('java.lang.System', 'getenv', 'HOME')",
    "CREATE TEMPORARY FUNCTION mine() RETURNS STRING RETURN reflect('java.lang.System', 'getenv', 'HOME')",
    "CREATE TEMPORARY FUNCTION mine AS 'org.apache.hadoop.hive.ql.udf.UDFLength'",
    "BEGIN SELECT TRANSFORM(1) USING 'touch {home}/came'; END",
    "EXECUTE IMMEDIATE \"SELECT reflect('java.lang.System', 'getenv', 'HOME')\"",
    "ADD JAR '{home}/x.jar'",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT from_xml('<a/>', 'b STRING', map('rowValidationXSDPath', 'http://127.0.0.1:{port}/a.xsd'))",
    "CREATE TEMPORARY VIEW mine AS SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
    "EXECUTE IMMEDIATE \"SELECT from_avro(x'00', 'int', map('avroSchemaUrl', '/etc/passwd'))\"",
    "CREATE TEMPORARY FUNCTION mine(v STRING) RETURNS STRING RETURN to_json(from_xml(v, 'b STRING', map('rowValidationXSDPath', '/etc/passwd')))",
    "CREATE TABLE mine (b STRING, c STRING DEFAULT to_json(from_xml('<a/>', 'b STRING', map('rowValidationXSDPath', '/etc/passwd')))) USING parquet",
    "CREATE TABLE mine (b STRING) USING xml OPTIONS (rowTag 'a', rowValidationXSDPath '/etc/passwd')",
    "CREATE TABLE mine USING jdbc OPTIONS (url 'jdbc:derby:{home}/came;create=true', dbtable 'x')",
    "CREATE TABLE mine USING text LOCATION '/etc/passwd'",
    "CREATE TEMPORARY VIEW mine USING text OPTIONS (path '/etc/passwd')",
    "CREATE TEMPORARY VIEW mine AS SELECT * FROM text.`/etc/passwd`",
    "CREATE TEMPORARY FUNCTION mine() RETURNS TABLE (v STRING) RETURN SELECT * FROM text.`/etc/passwd`",
    "INSERT OVERWRITE DIRECTORY '{home}/came' USING csv SELECT 1",
    "EXECUTE IMMEDIATE 'SELECT * FROM text.`/etc/passwd`'",
    "BEGIN SET spark.sql.runSQLOnFiles = true; END",
    "EXECUTE IMMEDIATE 'SET spark.sql.variable.substitute = true'",
    "SET spark.sql.variable.substitute = true",
    "SET spark.sql.runSQLOnFiles = true",
)
"""Refused in a gateway's session that writes."""

FILLING = (
    "reflect('java.lang.System', 'setProperty', 'came', v)",
    "`REFLECT`('java.lang.System', 'setProperty', 'came', v)",
    "system.builtin.java_method('java.lang.System', 'setProperty', 'came', v)",
    "transform(array(v), e -> try_reflect('java.lang.System', 'setProperty', 'came', e))[0]",
    "IDENTIFIER('reflect')('java.lang.System', 'setProperty', 'came', v)",
    "IDENTIFIER('refl' || 'ect')('java.lang.System', 'setProperty', 'came', v)",
    "TRANSFORM(v) USING 'touch {home}/came'",
    "TRANSFORM(v) USING 'touch {home}/came' AS v",
    "from_protobuf(encode(v, 'utf-8'), 'A', '/etc/passwd').a",
    "CAST(to_protobuf(struct(v), 'A', '/etc/passwd') AS STRING)",
    "to_json(from_xml(v, 'b STRING', map('rowValidationXSDPath', 'http://127.0.0.1:{port}/a.xsd')))",
    "(SELECT max(value) FROM text.`/etc/passwd`)",
    "(FROM text.`/etc/passwd`)",
    "read_files('/etc/passwd')",
    "unknown_function(v)",
    "spark_catalog.default.unknown_function(v)",
)
"""What no row of a table may be filled by."""


def filling(**places: str) -> Iterator[str]:
    """Yield statements that fill the declared table `filled` by what no gateway's session may have Spark evaluate."""
    for text in FILLING:
        expression = text.format(**places)
        yield f"INSERT INTO filled SELECT id, {expression}, seq FROM log"
        yield f"INSERT INTO filled SELECT id, v, seq FROM log WHERE ({expression}) = 'a'"
        other = "INSERT INTO other SELECT * FROM log;"
        yield f"EXECUTE STATEMENT SET BEGIN {other} INSERT INTO filled SELECT id, {expression}, seq FROM log; END"


def reaching(**places: str) -> Iterator[str]:
    """Yield the statements that reach what a pipeline owns."""
    tables = [table.format(**places) for table in TABLES]
    for number, change in enumerate(CHANGES):
        first, second = tables[number % len(tables)], tables[(number + 3) % len(tables)]
        for table in (first, second):
            yield _within(change, table)
    for table in FURTHER_TABLES:
        for change in CHANGES[:3]:
            yield _within(change, table.format(**places))
    for text in FOLDERS:
        yield text.format(**places)


def reading(**places: str) -> Iterator[str]:
    """Yield what a session that only reads refuses beside."""
    for text in READERS:
        yield text.format(**places)


def calling(**places: str) -> Iterator[str]:
    """Yield what a gateway's session that writes refuses beside."""
    for text in CALLING:
        yield text.format(**places)


def _within(change: str, table: str) -> str:
    """Put a table into a statement; one in two quotes has the inner one doubled."""
    if "'DELETE" in change:
        table = table.replace("'", "''")
    return change.format(table=table)
