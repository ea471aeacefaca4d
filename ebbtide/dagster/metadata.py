"""Metadata of a pipeline's tables in Dagster."""

from __future__ import annotations

import hashlib
import re
import warnings
from typing import cast

import dagster as dg

from ebbtide import MaterializedView, Pipeline
from ebbtide.ddl import type_ddl
from ebbtide.durations import format_duration
from ebbtide.executors import EngineKind
from ebbtide.runtime import Plan

TABLE = "ebbtide/table"
"""Metadata key of an asset that is a pipeline's table; its value is `state` or `sink`."""
ENGINE_KINDS = {"spark": {"spark"}, "local": {"python"}, "auto": set[str]()}
"""Engine to the kinds of its assets. With `auto` there is none: the metadata of each run say which engine it had."""

PIPELINE_TAG = "ebbtide/pipeline"
"""Tag of all runs that work on one pipeline: its name."""
TURN_TAG = "ebbtide/turn"
"""Tag of runs that take turns. The run queue admits one for each value, if `dagster.yaml` limits it."""

VALID_IN_KEYS = re.compile(r"[A-Za-z0-9_.-]+")
"""Characters that Dagster accepts in the key of an upstream asset."""


def source_key(spec: Pipeline) -> dg.AssetKey:
    """Return the key of a pipeline's source, named by its topic, table or folder; without these by the pipeline."""
    source = spec.source
    path = source.path or ""
    folder = path.rstrip("/").rpartition("/")[2]
    name = source.topic or source.table or folder or spec.name
    return dg.AssetKey(["source", valid_in_keys(name)])


def upstream_keys(spec: Pipeline) -> list[dg.AssetKey]:
    """Return the keys that a pipeline reads: its source; of a materialized view the sinks of its inputs."""
    view = _as_view(spec)
    if view is not None:
        return [dg.AssetKey(name) for name in view.inputs]
    return [source_key(spec)]


def _as_view(spec: Pipeline) -> MaterializedView | None:
    """Return a pipeline that is a materialized view; None of another one."""
    return cast("MaterializedView", spec) if spec.is_view else None


def valid_in_keys(name: str) -> str:
    """Return a name that Dagster takes in a key; one that has to be changed ends in a digest of what it was.

    Example:
        >>> valid_in_keys("shop.public.orders"), valid_in_keys("Größen 2026")
        ('shop.public.orders', 'Gr_en_2026_e45e94')
    """
    if VALID_IN_KEYS.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]  # keeps 'a b' and 'a_b' different
    valid = "_".join(VALID_IN_KEYS.findall(name))
    return f"{valid}_{digest}"


def state_key(spec: Pipeline) -> dg.AssetKey:
    """Return the key of a pipeline's state."""
    return dg.AssetKey(f"{spec.name}_state")


def run_name(spec: Pipeline) -> str:
    """Return the name of the job that brings a pipeline's sink up to date."""
    return spec.name


def checks_name(spec: Pipeline) -> str:
    """Return the name of the job that checks the sink during a continuous run."""
    return f"{spec.name}_check"


def pool(spec: Pipeline) -> str:
    """Return the pool in which a pipeline's bounded runs and maintenance take turns."""
    return f"checkpoint_{spec.name}"


def maintenance_pool(spec: Pipeline) -> str:
    """Return the pool of maintenance: its own for a continuous run, which yields between steps."""
    return pool(spec) if spec.run == "bounded" else f"maintenance_{spec.name}"


def run_tags(spec: Pipeline, turn: str | None = None) -> dict[str, str]:
    """Return the tags of a run.

    Args:
        spec: The pipeline that it works on.
        turn: Runs with the same word take turns: the name of a pool. None: the run waits for no other one.
    """
    tags = {PIPELINE_TAG: spec.name}
    if turn is not None:
        tags[TURN_TAG] = turn
    return tags


def follows_its_source(spec: Pipeline) -> bool:
    """Return whether new records may start a run; of a view, with `refresh: on_change` only."""
    view = _as_view(spec)
    return spec.run == "bounded" and (view is None or view.refresh == "on_change")


def freshness_policy(spec: Pipeline) -> dg.FreshnessPolicy | None:
    """Return the freshness policy; None for a continuous run, whose materialization has no end."""
    if spec.run == "continuous" and spec.max_run_age is None:
        return None
    return dg.FreshnessPolicy.time_window(
        fail_window=spec.freshness.fail_window, warn_window=spec.freshness.warn_window
    )


def asset_specs(spec: Pipeline) -> list[dg.AssetSpec]:
    """Describe a pipeline's state and its sink."""
    upstream = upstream_keys(spec)
    state = state_key(spec)
    sink = dg.AssetKey(spec.name)
    view = _as_view(spec)
    follows = view is not None and view.refresh == "on_change"
    automation = dg.AutomationCondition.eager() if follows else None
    return [
        dg.AssetSpec(
            state,
            deps=upstream,
            description=_state_description(spec),
            metadata={**_lineage(spec, upstream[0]), TABLE: "state"},
            automation_condition=automation,
            group_name=spec.group,
            owners=spec.owners,
            kinds={"deltalake"} | engine_kinds(spec),
        ),
        dg.AssetSpec(
            sink,
            deps=[state],
            description=_sink_description(spec),
            metadata={
                "dagster/column_schema": column_schema(spec),
                **_lineage(spec, state),
                TABLE: "sink",
            },
            freshness_policy=freshness_policy(spec),
            automation_condition=automation,
            group_name=spec.group,
            owners=spec.owners,
            kinds=({"deltalake"} if spec.sink.type == "delta" else set()) | engine_kinds(spec),
        ),
    ]


def engine_kinds(spec: Pipeline) -> set[str]:
    """Return the kinds that say where a pipeline's tables are made, as far as its spec settles it."""
    return ENGINE_KINDS["spark" if Plan("", spec).spark_needed_for else spec.engine]


def on_engine(definitions: dg.Definitions, engine: EngineKind | None) -> dg.Definitions:
    """Give the tables of all pipelines the kinds of the engine that a project's resources name.

    Args:
        definitions: The project's.
        engine: The engine; None: each spec says.
    """
    if engine is None:
        return definitions
    of_engines = set().union(*ENGINE_KINDS.values())

    def with_kinds(asset: dg.AssetSpec) -> dg.AssetSpec:
        if TABLE not in asset.metadata:
            return asset
        return asset.replace_attributes(kinds=(asset.kinds - of_engines) | ENGINE_KINDS[engine])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the function is a preview, and calls beta functions
        return definitions.map_resolved_asset_specs(func=with_kinds)


def _state_description(spec: Pipeline) -> str:
    ttls = []
    for state, config in spec.ttls.items():
        label = f"`{state}`: " if state else ""
        ttls.append(f"{label}{format_duration(config.ttl)}")
    all_of_them = ", ".join(ttls)
    kept = f"Time to live {all_of_them}." if ttls else "Never expires."
    return f"State of `{spec.name}`: its entries, and the decision of each step. {kept}"


def _sink_description(spec: Pipeline) -> str:
    key = ", ".join(f"`{name}`" for name in spec.sink_key)
    sequence = ", ".join(spec.sequence)
    order = "in order of arrival" if spec.applies_in_order else f"by `{sequence}`"
    what = f"Key: {key}. Changes apply {order}."
    view = _as_view(spec)
    if view is not None:
        query = view.query.strip()
        what = f"Key: {key}. Result of this query:\n\n```sql\n{query}\n```"
    if not spec.description:
        return what
    return f"{spec.description}\n\n{what}"


def column_schema(spec: Pipeline) -> dg.TableSchema:
    """Return the sink's columns."""
    comments = spec.sink_table.comments
    columns = []
    for field in spec.sink_table.columns:
        is_unique = spec.sink_key == [field.name]
        constraints = dg.TableColumnConstraints(nullable=field.nullable, unique=is_unique)
        described = comments.get(field.name) or _role(spec, field.name)
        column = dg.TableColumn(field.name, type_ddl(field.type), description=described, constraints=constraints)
        columns.append(column)
    return dg.TableSchema(columns)


def _role(spec: Pipeline, column: str) -> str | None:
    """Return the description of a column without a comment: its part in the key, the order, or the personal data."""
    roles = []
    key = spec.sink_key
    if column in key:
        is_whole = len(key) == 1
        roles.append("Key of the row" if is_whole else "Part of the row's key")
    if column in spec.sequence:
        roles.append("orders the changes of a key" if roles else "Orders the changes of a key")
    if column in spec.personal:
        roles.append("personal" if roles else "Personal")
    if not roles:
        return None
    listed = ", ".join(roles)
    return f"{listed}."


def _lineage(spec: Pipeline, upstream: dg.AssetKey) -> dict[str, dg.TableColumnLineage]:
    """Map each column to the upstream columns that it comes from."""
    origins = {}
    for name, sources in spec.column_sources.items():
        origins[name] = [dg.TableColumnDep(upstream, source) for source in sources]
    lineage = dg.TableColumnLineage(origins)
    return {"dagster/column_lineage": lineage}
