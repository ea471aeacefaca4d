"""The component types: what `type: ebbtide.dagster.NAME` in a `defs.yaml` may name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Self

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from ebbtide.dagster.definitions import pipeline_definitions
from ebbtide.dagster.resources import (
    ClockResource,
    SparkResource,
    StorageResource,
    refuse_literal_credentials,
)
from ebbtide.paths import refuse_unusable
from ebbtide.spec import stateful, upsert, view
from ebbtide.spec.load import refuse_shared_names
from ebbtide.spec.pipeline import Pipeline

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


VIEW_EXAMPLE: dict[str, Any] = {
    "query": "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id",
    "inputs": ["orders"],
    "schema": "customer_id BIGINT NOT NULL, n BIGINT",
    "key": ["customer_id"],
    "refresh": {"every": "15m"},
}


class ScaffoldParams(BaseModel):
    """What `dg scaffold defs` takes besides the name.

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
    """Of an upsert pipeline."""

    example = UPSERT_EXAMPLE


class StatefulScaffolder(_Scaffolder):
    """Of a stateful pipeline."""

    example = STATEFUL_EXAMPLE


class ViewScaffolder(_Scaffolder):
    """Of a materialized view."""

    example = VIEW_EXAMPLE
    has_source = False


class _PipelineComponent(dg.Component):
    """Assets, checks, jobs and schedules from one spec; the command line reads the same file."""

    model: ClassVar[type[Pipeline]]

    def __init__(self, spec: Pipeline, path: Path) -> None:
        self.spec, self.path = spec, path

    @classmethod
    def get_model_cls(cls) -> type[Pipeline]:
        """Return the schema of the attributes."""
        return cls.model

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Make the component from a defs.yaml."""
        return cls(attributes.located(context.path), context.path)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the pipeline's definitions; where the project has no `Resources`, with the default ones."""
        pipelines = context.component_tree.get_all_components(of_type=_PipelineComponent)
        refuse_shared_names((each.spec.name, str(each.path)) for each in pipelines)
        definitions = pipeline_definitions(self.spec)
        if context.component_tree.get_all_components(of_type=Resources):
            return definitions
        return dg.Definitions.merge(definitions, dg.Definitions(resources=DEFAULT_RESOURCES))


@dg.scaffold_with(UpsertScaffolder)
class UpsertPipeline(_PipelineComponent):
    """Turns a changelog into a Delta table. Its attributes are those of `ebbtide.UpsertPipeline`."""

    model = upsert.UpsertPipeline


@dg.scaffold_with(StatefulScaffolder)
class StatefulPipeline(_PipelineComponent):
    """Runs a function with expiring state, per key. Its attributes are those of `ebbtide.StatefulPipeline`."""

    model = stateful.StatefulPipeline


@dg.scaffold_with(ViewScaffolder)
class MaterializedView(_PipelineComponent):
    """Keeps a query over the tables of other pipelines as a table. Its attributes are those of `ebbtide.MaterializedView`."""

    model = view.MaterializedView


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
    keep_data_docs: int = Field(default=20, gt=0, description="Data Docs kept per pipeline and check. Default: 20.")
    spark: dict[str, str] = Field(
        default_factory=dict,
        description="Spark settings that override Ebbtide's; a credential as ${NAME}, from the environment. Default: none.",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the definitions: resources only."""
        refuse_literal_credentials(self.spark)
        if self.root is not None:
            refuse_unusable("root", self.root)
        given = self.model_dump(include={"root", "data_docs", "keep_data_docs"}, exclude_none=True)
        storage = StorageResource(**given)
        resources = {"spark": SparkResource(settings=self.spark), "storage": storage, "clock": ClockResource()}
        return dg.Definitions(resources=resources)


DEFAULT_RESOURCES = {"spark": SparkResource(), "storage": StorageResource(), "clock": ClockResource()}
"""Of a project without `Resources`. The same objects for all pipelines, or Dagster would take them for different ones."""
