"""DDL: columns as Spark's DDL writes them, read without Spark.

`parse_ddl` reads a `TableSchema`; `ddl_of`, `type_ddl` and `added_ddl` write columns and types. `as_written` quotes a name, `as_compared` gives the
form by which names are equal. `SparkSql` is the dialect of sqlglot in which all SQL is read.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.ddl._ddl import TableSchema as TableSchema
    from ebbtide.ddl._ddl import added_ddl as added_ddl
    from ebbtide.ddl._ddl import as_compared as as_compared
    from ebbtide.ddl._ddl import as_written as as_written
    from ebbtide.ddl._ddl import ddl_of as ddl_of
    from ebbtide.ddl._ddl import is_column_name as is_column_name
    from ebbtide.ddl._ddl import is_exact as is_exact
    from ebbtide.ddl._ddl import parse_ddl as parse_ddl
    from ebbtide.ddl._ddl import type_ddl as type_ddl
    from ebbtide.ddl._dialect import SparkSql as SparkSql
else:
    __getattr__, __all__ = names_of(__name__)
