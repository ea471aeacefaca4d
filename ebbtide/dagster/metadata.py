"""What Dagster shows of a pipeline's tables."""

from __future__ import annotations

import hashlib
import re

import dagster as dg

from ebbtide import MaterializedView, Pipeline
from ebbtide.model.durations import format_duration
from ebbtide.spec.ddl import type_ddl

KINDS = {"spark", "deltalake"}
"""Which logos the UI draws."""

VALID_IN_KEYS = re.compile(r"[A-Za-z0-9_.-]+")
"""What Dagster takes in the key of an asset that another one reads."""


def source_key(spec: Pipeline) -> dg.AssetKey:
    """Name what a pipeline reads: its topic, else its table, else its folder; of a source without these the pipeline's own name."""
    source = spec.source
    path = source.path or ""
    folder = path.rstrip("/").rpartition("/")[2]
    name = source.topic or source.table or folder or spec.name
    return dg.AssetKey(["source", valid_in_keys(name)])


def upstream_keys(spec: Pipeline) -> list[dg.AssetKey]:
    """Name what a pipeline reads: its source; of a materialized view the sinks of its inputs."""
    if isinstance(spec, MaterializedView):
        return [dg.AssetKey(name) for name in spec.inputs]
    return [source_key(spec)]


def valid_in_keys(name: str) -> str:
    """Return a name that Dagster takes in a key; one that has to be changed ends in a digest of what it was.

    Example:
        >>> valid_in_keys("shop.public.orders"), valid_in_keys("Größen 2026")
        ('shop.public.orders', 'Gr_en_2026_e45e94')
    """
    if VALID_IN_KEYS.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]  # 'a b' and 'a_b' stay two
    valid = "_".join(VALID_IN_KEYS.findall(name))
    return f"{valid}_{digest}"


def state_key(spec: Pipeline) -> dg.AssetKey:
    """Name a pipeline's state."""
    return dg.AssetKey(f"{spec.name}_state")


def stream_name(spec: Pipeline) -> str:
    """Name the job that brings a pipeline's sink up to date."""
    return f"{spec.name}_stream"


def checks_name(spec: Pipeline) -> str:
    """Name the job that judges the sink beside a run that goes on."""
    return f"{spec.name}_check"


def freshness_policy(spec: Pipeline) -> dg.FreshnessPolicy | None:
    """Say how old the last materialization may be; nothing where there is none, as a run that goes on has no end."""
    if spec.run == "continuous" and spec.max_run_age is None:
        return None
    return dg.FreshnessPolicy.time_window(
        fail_window=spec.freshness.fail_window, warn_window=spec.freshness.warn_window
    )


def asset_specs(spec: Pipeline) -> list[dg.AssetSpec]:
    """Describe a pipeline's state and its sink."""
    upstream, state, sink = upstream_keys(spec), state_key(spec), dg.AssetKey(spec.name)
    follows = isinstance(spec, MaterializedView) and spec.refresh == "on_change"
    automation = dg.AutomationCondition.eager() if follows else None
    return [
        dg.AssetSpec(
            state,
            deps=upstream,
            description=_state_description(spec),
            metadata={**_lineage(spec, upstream[0]), "ebbtide/table": "state"},
            automation_condition=automation,
            group_name=spec.group,
            owners=spec.owners,
            kinds=KINDS,
        ),
        dg.AssetSpec(
            sink,
            deps=[state],
            description=_sink_description(spec),
            metadata={
                "dagster/column_schema": column_schema(spec),
                **_lineage(spec, state),
                "ebbtide/table": "sink",
            },
            freshness_policy=freshness_policy(spec),
            automation_condition=automation,
            group_name=spec.group,
            owners=spec.owners,
            kinds=KINDS if spec.sink.type == "delta" else {"spark"},
        ),
    ]


def _state_description(spec: Pipeline) -> str:
    ttls = []
    for state, config in spec.ttls.items():
        label = f"`{state}`: " if state else ""
        ttls.append(f"{label}{format_duration(config.ttl)}")
    all_of_them = ", ".join(ttls)
    kept = f"Time to live {all_of_them}." if ttls else "Never expires."
    return f"What the reconciler of `{spec.name}` remembers, and what each step decided. {kept}"


def _sink_description(spec: Pipeline) -> str:
    key = ", ".join(f"`{name}`" for name in spec.sink_key)
    sequence = ", ".join(spec.sequence)
    order = f"by `{sequence}`" if sequence else "in order of arrival"
    what = f"Key: {key}. Changes apply {order}."
    if isinstance(spec, MaterializedView):
        what = f"Key: {key}. What this query gives:\n\n```sql\n{spec.query.strip()}\n```"
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
        described = comments.get(field.name)
        column = dg.TableColumn(field.name, type_ddl(field.type), description=described, constraints=constraints)
        columns.append(column)
    return dg.TableSchema(columns)


def _lineage(spec: Pipeline, upstream: dg.AssetKey) -> dict[str, dg.TableColumnLineage]:
    """Say of each column that comes from upstream which columns it comes from."""
    origins = {}
    for name, sources in spec.column_sources.items():
        origins[name] = [dg.TableColumnDep(upstream, source) for source in sources]
    return {"dagster/column_lineage": dg.TableColumnLineage(origins)}
