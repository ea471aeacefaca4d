"""What Dagster is told of a pipeline's tables."""

from __future__ import annotations

import hashlib
import re

import dagster as dg

from ebbtide import Pipeline


VALID_IN_KEYS = re.compile(r"[A-Za-z0-9_.-]+")
"""What Dagster takes in the key of an asset that another one reads."""


def source_key(spec: Pipeline) -> dg.AssetKey:
    """Name what a pipeline reads: its topic, else its table, else its folder."""
    source = spec.source
    folder = source.path.rstrip("/").rpartition("/")[2]
    return dg.AssetKey(["source", valid_in_keys(source.topic or source.table or folder)])


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


def asset_specs(spec: Pipeline) -> list[dg.AssetSpec]:
    """Describe a pipeline's state and its sink."""
    order = f"by `{', '.join(spec.sequence)}`" if spec.sequence else "in order of arrival"
    what = f"Key: {', '.join(f'`{k}`' for k in spec.sink_key)}. Changes apply {order}."
    ttls = [f"{'' if state is None else f'`{state}`: '}{ttl.ttl}" for state, ttl in spec.operator.ttls.items()]
    ttl = f"Time to live {', '.join(ttls)}." if ttls else "Kept for ever."
    common = {"group_name": spec.group, "owners": spec.owners, "kinds": {"spark", "deltalake"}}
    state = dg.AssetSpec(
        state_key(spec),
        deps=[source_key(spec)],
        description=f"What the reconciler of `{spec.name}` remembers, and what each step decided. {ttl}",
        metadata={**_lineage(spec, source_key(spec)), "ebbtide/table": "state"},
        **common,
    )
    sink = dg.AssetSpec(
        spec.name,
        deps=[state.key],
        description="\n\n".join(part for part in (spec.description, what) if part),
        metadata={
            "dagster/column_schema": column_schema(spec),
            **_lineage(spec, state.key),
            "ebbtide/table": "sink",
        },
        freshness_policy=dg.FreshnessPolicy.time_window(
            fail_window=spec.freshness.fail_window, warn_window=spec.freshness.warn_window
        ),
        **common,
    )
    return [state, sink]


def column_schema(spec: Pipeline) -> dg.TableSchema:
    """Return the sink's columns."""
    table = spec.sink_table
    return dg.TableSchema(
        [
            dg.TableColumn(
                field.name,
                str(field.type),
                description=table.comments.get(field.name),
                constraints=dg.TableColumnConstraints(nullable=field.nullable, unique=spec.sink_key == [field.name]),
            )
            for field in table.columns
        ]
    )


def _lineage(spec: Pipeline, upstream: dg.AssetKey) -> dict[str, dg.TableColumnLineage]:
    names = [name for name in spec.sink_table.columns.names if name in spec.table.columns.names]
    return {"dagster/column_lineage": dg.TableColumnLineage({n: [dg.TableColumnDep(upstream, n)] for n in names})}
