"""The component types: what `type: ebbtide.dagster.NAME` in a `defs.yaml` may name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from ebbtide import spec
from ebbtide.dagster.definitions import automation_definitions, table_definitions
from ebbtide.dagster.resources import ClockResource, EngineName, SparkResource, StorageResource
from ebbtide.dagster.sensors import topics_sensor
from ebbtide.definitions import refuse_shared_names
from ebbtide.executors import EngineKind
from ebbtide.sessions import refuse_literal_credentials
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

UPSERT_EXAMPLE: dict[str, Any] = {
    "format": {"type": "debezium"},
    "schema": "id BIGINT NOT NULL, name STRING, updated_at TIMESTAMP",
    "key": ["id"],
    "order": {"sequence": ["_lsn"]},
    "ttl": "30d",
}
STATEFUL_EXAMPLE: dict[str, Any] = {
    "format": {"type": "plain"},
    "schema": "id BIGINT NOT NULL, at TIMESTAMP NOT NULL",
    "key": ["id"],
    "event_time": "at",
    "function": "ebbtide.functions:LastSeen",
}
SEVERAL_EXAMPLE: dict[str, Any] = {
    "shared": {
        "source": {"type": "kafka", "bootstrap_servers": "localhost:9092"},
        "format": {"type": "debezium"},
        "order": {"sequence": ["_lsn"]},
        "ttl": "30d",
    },
    "topics": "shop.public.*",
    "pipelines": [
        {
            "name": "orders",
            "source": {"topic": "shop.public.orders"},
            "schema": "id BIGINT NOT NULL, total DECIMAL(14,2)",
            "key": ["id"],
        }
    ],
}
VIEW_EXAMPLE: dict[str, Any] = {
    "query": "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id",
    "inputs": ["orders"],
    "schema": "customer_id BIGINT NOT NULL, n BIGINT",
    "key": ["customer_id"],
    "refresh": {"every": "15m"},
}


class ScaffoldParams(BaseModel):
    """Parameters of `dg scaffold defs` other than the name.

    Args:
        source: Folder or URI of the changelog. Default: `data/NAME`.
    """

    source: str | None = Field(default=None, description="Folder or URI of the changelog. Default: data/NAME.")


class _Scaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes a spec that loads as it is, to be edited."""

    example: ClassVar[dict[str, Any]]
    has_source: ClassVar[bool] = True

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """Return the parameters' schema."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Write the `defs.yaml`."""
        folder = request.target_path.name.lower()
        name = re.sub(r"[^a-z0-9_]", "_", folder)
        source = request.params.source or f"data/{name}"
        reads = {"source": {"path": source}} if self.has_source else {}
        dg.scaffold_component(request, {"name": name, **reads, **self.example})


class UpsertScaffolder(_Scaffolder):
    """Scaffolds an upsert pipeline."""

    example = UPSERT_EXAMPLE


class SeveralScaffolder(_Scaffolder):
    """Scaffolds several upsert pipelines."""

    has_source = False

    example = SEVERAL_EXAMPLE


class StatefulScaffolder(_Scaffolder):
    """Scaffolds a stateful pipeline."""

    example = STATEFUL_EXAMPLE


class ViewScaffolder(_Scaffolder):
    """Scaffolds a materialized view."""

    example = VIEW_EXAMPLE
    has_source = False


class _Pipelines(dg.Component):
    """Assets, checks, jobs and schedules from one file; the command line reads the same file."""

    model: ClassVar[type[BaseModel]]

    def __init__(self, loaded: Any, path: Path) -> None:
        self.loaded, self.path = loaded, path

    @property
    def specs(self) -> Sequence[Pipeline]:
        """The pipelines of the file."""
        return [self.loaded]

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the schema of the attributes."""
        return cls.model

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Make the component from a defs.yaml."""
        return cls(attributes.located(context.path), context.path)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the pipelines' definitions; where the project has no `Resources`, with the default ones."""
        every = context.component_tree.get_all_components(of_type=_Pipelines)
        specs: list[Pipeline] = []
        places = []
        for each in every:
            specs += each.specs
            places += [(pipeline.name, str(each.path)) for pipeline in each.specs]
        refuse_shared_names(places)
        specs.sort(key=lambda pipeline: pipeline.name)
        made = [self.definitions(specs)]
        # Jobs of operations and sensors serve all pipelines of the project, so exactly one component must define them: the one with the
        # first pipeline by name.
        own_names = {pipeline.name for pipeline in self.specs}
        if specs[0].name in own_names:
            made.append(automation_definitions(specs))
        if not context.component_tree.get_all_components(of_type=Resources):
            made.append(dg.Definitions(resources=DEFAULT_RESOURCES))
        return dg.Definitions.merge(*made)

    def definitions(self, specs: Sequence[Pipeline]) -> dg.Definitions:
        """Create a pipeline's definitions, without those that the pipelines of a project share.

        Args:
            specs: All pipelines of the project.
        """
        return dg.Definitions.merge(*(table_definitions(spec, specs) for spec in self.specs))


@dg.scaffold_with(UpsertScaffolder)
class UpsertPipeline(_Pipelines):
    """Turns a changelog into a Delta table. Its attributes are those of `ebbtide.UpsertPipeline`."""

    model = spec.UpsertPipeline


@dg.scaffold_with(SeveralScaffolder)
class UpsertPipelines(_Pipelines):
    """Several upsert pipelines, with the shared fields written once. Its attributes are those of `ebbtide.UpsertPipelines`."""

    model = spec.UpsertPipelines

    @property
    def specs(self) -> Sequence[Pipeline]:
        """The pipelines of the file."""
        return list(self.loaded.pipelines)

    def definitions(self, specs: Sequence[Pipeline]) -> dg.Definitions:
        """Make their definitions, and the sensor on topics that none of them reads."""
        of_pipelines = super().definitions(specs)
        if self.loaded.pattern is None:
            return of_pipelines
        return dg.Definitions.merge(of_pipelines, dg.Definitions(sensors=[topics_sensor(self.loaded)]))


@dg.scaffold_with(StatefulScaffolder)
class StatefulPipeline(_Pipelines):
    """Runs a function with expiring state, per key. Its attributes are those of `ebbtide.StatefulPipeline`."""

    model = spec.StatefulPipeline


@dg.scaffold_with(ViewScaffolder)
class MaterializedView(_Pipelines):
    """Keeps a query over the tables of other pipelines as a table. Its attributes are those of `ebbtide.MaterializedView`."""

    model = spec.MaterializedView


class Resources(dg.Component, dg.Model, dg.Resolvable):
    """The resources of all pipelines of a project, in place of the default ones. One per project, in YAML or Python."""

    model_config = ConfigDict(extra="forbid")

    root: str | None = Field(
        default=None,
        description="Folder of all pipelines' tables: a path or a URI. Default: EBBTIDE_ROOT, else .ebbtide.",
    )
    data_docs: str | None = Field(
        default=None, description="Local folder for Great Expectations' Data Docs. Default: .ebbtide/data_docs."
    )
    keep_data_docs: int | None = Field(
        default=None, gt=0, description="Data Docs kept per pipeline and check. Default: 20."
    )
    spark: dict[str, str] = Field(
        default_factory=dict,
        description="Spark settings that override Ebbtide's; a credential as ${NAME}, from the environment. Default: none.",
    )

    engine: EngineKind | None = Field(
        default=None,
        description="Where runs make their steps, in place of `engine` of each spec. Default: none, as each spec says.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the definitions: resources only."""
        refuse_literal_credentials(self.spark)
        if self.root is not None:
            Location(self.root).refuse_unusable("root")
        given = self.model_dump(include={"root", "data_docs", "keep_data_docs"}, exclude_none=True)
        storage = StorageResource(**given)
        spark = SparkResource(settings=self.spark, engine=None if self.engine is None else EngineName(self.engine))
        resources = {"spark": spark, "storage": storage, "clock": ClockResource()}
        return dg.Definitions(resources=resources)


DEFAULT_RESOURCES = {"spark": SparkResource(), "storage": StorageResource(), "clock": ClockResource()}
"""Resources of a project without `Resources`: the same objects for all pipelines, as Dagster compares them by identity."""
