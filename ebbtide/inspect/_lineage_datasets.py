"""The datasets that a pipeline reads and writes, as OpenLineage names and describes them.

| dataset | namespace | name |
|---|---|---|
| topic | `kafka://HOST:PORT` of the first broker | the topic |
| folder or table in a bucket | `s3://BUCKET`, `gs://BUCKET`, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net` | the key |
| local folder or table | `file` | the path |
| a project's own source or sink | its type | where it is |

Source: https://openlineage.io/docs/spec/naming
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

from ebbtide.ddl import TableSchema, type_ddl
from ebbtide.delta import Log
from ebbtide.errors import EbbtideError, MissingExtraError
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

try:
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        dataset_version_dataset,
        input_statistics_input_dataset,
        lifecycle_state_change_dataset,
        output_statistics_output_dataset,
        schema_dataset,
        storage_dataset,
    )
except ModuleNotFoundError as missing:
    raise MissingExtraError.of_extra("lineage", "OpenLineage's client") from missing

PRODUCER = f"urn:ebbtide:{version('ebbtide')}"
SCHEMES = {"s3a": "s3", "abfs": "abfss"}
"""Schemes of Hadoop's clients to those of the stores."""
DIRECT, INDIRECT = "DIRECT", "INDIRECT"
Name = tuple[str, str]
"""Namespace and name of a dataset."""
Facets = dict[str, Any]


def name_of_location(location: str) -> Name:
    """Return the name of a folder or table.

    Example:
        >>> name_of_location("/srv/shop/sink"), name_of_location("s3a://lake/shop/sink")
        (('file', '/srv/shop/sink'), ('s3://lake', 'shop/sink'))
    """
    if Location(location).is_local:
        return "file", location.removeprefix("file://")
    scheme, _, place = location.partition("://")
    bucket, _, key = place.partition("/")
    of_store = SCHEMES.get(scheme, scheme)
    namespace = f"{of_store}://{bucket}"
    name = key.strip("/")
    return namespace, name or "/"


@dataclass(frozen=True)
class Datasets:
    """The datasets of one pipeline.

    Args:
        plan: The pipeline.
        is_fresh: The run writes the sink from scratch.
    """

    plan: Plan
    is_fresh: bool = False

    @property
    def spec(self) -> Pipeline:
        """The pipeline's spec."""
        return self.plan.spec

    @cached_property
    def source(self) -> Name:
        """Name of the changelog that it reads."""
        source = self.spec.source
        if source.server:
            namespace = f"{source.type}://{source.server}"
            return namespace, source.place
        if source.by_position:
            return source.type, source.place
        return name_of_location(source.place)

    def inputs(self, counts: Counter[str]) -> list[InputDataset]:
        """Return the inputs: a changelog, or the sinks of other pipelines.

        Args:
            counts: Counts of the run.
        """
        if self.spec.tables_read:
            return [self._sink_read(name) for name in self.spec.tables_read]
        n_records = counts["records"]
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(n_records, producer=PRODUCER)
        facets: Facets = {"schema": _schema_facet(self.spec.table)}
        counted: Facets = {"inputStatistics": statistics}
        return [InputDataset(*self.source, facets=facets, inputFacets=counted)]

    def _sink_read(self, pipeline: str) -> InputDataset:
        """Return the sink of another pipeline."""
        table = Location(self.plan.all_pipelines) / pipeline / "sink"
        return InputDataset(*name_of_location(table))

    def outputs(self, counts: Counter[str], *, has_ended: bool) -> list[OutputDataset]:
        """Return the outputs: the sink, and the changelog if there is one.

        Args:
            counts: Counts of the run.
            has_ended: The version of the table is that of the run.
        """
        n_rows = counts["inserted"] + counts["updated"]
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(n_rows, producer=PRODUCER)
        counted: Facets = {"outputStatistics": statistics}
        shared = {"schema": _schema_facet(self.spec.sink_table), **self._column_lineage()}
        facets = {**shared, **self._sink_facets(has_ended=has_ended)}
        sink = OutputDataset(*self._sink, facets=facets, outputFacets=counted)
        if not self.spec.emits_every:
            return [sink]
        name = name_of_location(self.plan.at("changelog"))
        stored = {**shared, "storage": _storage_facet()}
        changelog = OutputDataset(*name, facets=stored)
        return [sink, changelog]

    @property
    def _sink(self) -> Name:
        type_ = self.spec.sink.type
        if type_ == "delta":
            return name_of_location(self.plan.at("sink"))
        return type_, self.plan.sink.path

    def _sink_facets(self, *, has_ended: bool) -> Facets:
        """Return how the sink is stored, and its version."""
        if self.spec.sink.type != "delta":
            return {}
        facets: Facets = {"storage": _storage_facet()}
        if self.is_fresh:
            overwritten = lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE
            facets["lifecycleStateChange"] = lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                overwritten, producer=PRODUCER
            )
        newest = self._sink_version() if has_ended else None
        if newest is not None:
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(newest), producer=PRODUCER)
        return facets

    def _sink_version(self) -> int | None:
        """Return the sink's newest version; None without one, or if it cannot be read, which the run has said."""
        try:
            [*_, newest] = Log(self.plan.at("sink")).versions()
        except (OSError, ValueError, EbbtideError):
            return None
        return newest

    def _column_lineage(self) -> Facets:
        """Return the source columns of each sink column; none for a view, whose query shows them."""
        sources = self.spec.column_sources
        if not sources:
            return {}
        fields = {column: self._fields(column, read) for column, read in sources.items()}
        deciding = self._deciding()
        facet = column_lineage_dataset.ColumnLineageDatasetFacet(fields, deciding, producer=PRODUCER)
        return {"columnLineage": facet}

    def _fields(self, column: str, read: list[str]) -> column_lineage_dataset.Fields:
        subtype = "IDENTITY" if column in self.spec.copied_columns else "TRANSFORMATION"
        return column_lineage_dataset.Fields([self._field(name, DIRECT, subtype) for name in read])

    def _deciding(self) -> list[column_lineage_dataset.InputField]:
        """Return the columns that decide which rows exist: key, order and filter columns."""
        spec = self.spec
        sequence = () if spec.applies_in_order else spec.sequence
        last_of_each_key = dict.fromkeys([*spec.key, *sequence])
        deciding = []
        for name in last_of_each_key:
            field = self._field(name, INDIRECT, "WINDOW")
            deciding.append(field)
        for name in spec.filter_columns:
            field = self._field(name, INDIRECT, "FILTER")
            deciding.append(field)
        return deciding

    def _field(self, name: str, type_: str, subtype: str) -> column_lineage_dataset.InputField:
        transformation = column_lineage_dataset.Transformation(type_, subtype)
        return column_lineage_dataset.InputField(*self.source, name, [transformation])


def _storage_facet() -> storage_dataset.StorageDatasetFacet:
    return storage_dataset.StorageDatasetFacet("delta", "parquet", producer=PRODUCER)


def _schema_facet(table: TableSchema) -> schema_dataset.SchemaDatasetFacet:
    """Return a table's columns."""
    comments: Mapping[str, str] = table.comments
    fields = []
    for column in table.columns:
        type_ = type_ddl(column.type)
        comment = comments.get(column.name)
        field = schema_dataset.SchemaDatasetFacetFields(column.name, type_, comment)
        fields.append(field)
    return schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
