"""The pipeline spec: what a user writes."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.spec._bounded_yaml import read_yaml as read_yaml
    from ebbtide.spec._ddl import TableSchema as TableSchema
    from ebbtide.spec._ddl import added_ddl as added_ddl
    from ebbtide.spec._ddl import as_compared as as_compared
    from ebbtide.spec._ddl import as_written as as_written
    from ebbtide.spec._ddl import ddl_of as ddl_of
    from ebbtide.spec._ddl import is_column_name as is_column_name
    from ebbtide.spec._ddl import is_exact as is_exact
    from ebbtide.spec._ddl import parse_ddl as parse_ddl
    from ebbtide.spec._ddl import type_ddl as type_ddl
    from ebbtide.spec._dialect import SparkSql as SparkSql
    from ebbtide.spec._fields import NAME as NAME
    from ebbtide.spec._kafka import KafkaSource as KafkaSource
    from ebbtide.spec._parts import DeltaSink as DeltaSink
    from ebbtide.spec._pipeline import Pipeline as Pipeline
    from ebbtide.spec._positioned import SourceStart as SourceStart
    from ebbtide.spec._reading import project_of as project_of
    from ebbtide.spec._reading import read_attributes as read_attributes
    from ebbtide.spec._row_functions import RowFunction as RowFunction
    from ebbtide.spec._several import UpsertPipelines as UpsertPipelines
    from ebbtide.spec._transform import Transform as Transform
    from ebbtide.spec._upsert import UpsertPipeline as UpsertPipeline
    from ebbtide.spec._view import MaterializedView as MaterializedView
else:
    __getattr__, __all__ = names_of(__name__)
