"""Materialized views: a query over the tables of other pipelines, kept as a table."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from ebbtide.changelog import SequenceColumns
from ebbtide.columns import inner_fields
from ebbtide.durations import PositiveDuration, format_duration
from ebbtide.keyed_state import StateTtlConfig, Ttl
from ebbtide.spec._names import NAME
from ebbtide.spec._parts import PlainFormat, SpecPart, refuse
from ebbtide.spec._pipeline import Pipeline

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class RefreshEvery(SpecPart):
    """A view is refreshed at equal intervals."""

    every: PositiveDuration = Field(
        description="The interval: whole minutes that divide an hour, whole hours that divide a day, or 1d. Required."
    )

    @field_validator("every")
    @classmethod
    def _is_regular(cls, value: timedelta) -> timedelta:
        is_below_hour = value < HOUR
        unit = MINUTE if is_below_hour else HOUR
        whole = HOUR if is_below_hour else DAY
        is_of_units = value >= unit and not value % unit
        is_regular = is_of_units and not whole % value
        if not is_regular:
            allowed = "1m, 5m, 15m or any divisor of an hour; 1h, 6h or any divisor of a day; 1d"
            refuse("refresh.every", [format_duration(value)], allowed)
        return value

    @property
    def cron(self) -> str:
        """The interval as a cron expression of five fields, at a minute that depends on the view's name."""
        if self.every < HOUR:
            return f"H/{self.every // MINUTE} * * * *"
        hours = self.every // HOUR
        return "H 0 * * *" if hours == DAY // HOUR else f"H */{hours} * * *"


Refresh = Literal["on_change", "manual"] | RefreshEvery


class ViewInputs(SpecPart):
    """The source of a view: it reads tables, not records."""

    by_position: ClassVar[bool] = False

    type: Literal["tables"] = "tables"
    records: Literal["value"] = "value"
    topic: None = None
    table: None = None
    path: str = ""
    max_records_per_second: None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The traits by which a view differs from a pipeline over records."""
        return {"type": self.type}


class MaterializedView(Pipeline):
    """A query over the tables of other pipelines, kept as a table.

    A step pins the versions of these tables, finds the view's rows that may have changed in their change feeds,
    computes these again and writes the difference. See [views](views.md).

    Example:
        >>> view = MaterializedView(
        ...     name="totals", inputs=["orders"], key=["customer_id"], refresh={"every": "5m"},
        ...     schema="customer_id BIGINT NOT NULL, total DECIMAL(24,2)",
        ...     query="SELECT customer_id, sum(total) AS total FROM orders GROUP BY customer_id",
        ... )
        >>> view.refresh.cron
        'H/5 * * * *'
    """

    source: ClassVar[Any] = ViewInputs()  # type: ignore[misc]
    format: ClassVar[Any] = PlainFormat(type="plain")  # type: ignore[misc]
    schema_evolution_mode: ClassVar[Any] = "ignore"  # type: ignore[misc]
    ignored_columns: ClassVar[Any] = []  # type: ignore[misc]
    event_time: ClassVar[Any] = None  # type: ignore[misc]
    allowed_delay: ClassVar[Any] = timedelta(0)  # type: ignore[misc]
    downtime_over: ClassVar[Any] = None  # type: ignore[misc]
    run: ClassVar[Any] = "bounded"  # type: ignore[misc]
    trigger_interval: ClassVar[Any] = timedelta(seconds=1)  # type: ignore[misc]

    query: str = Field(
        min_length=1,
        description="The query, Spark SQL (ANSI, UTC) over the inputs by their names. Its columns are those of the schema, in order and with their types. Another query is applied to all rows by the next run. Required.",
    )
    inputs: list[Annotated[str, Field(pattern=NAME)]] = Field(
        min_length=1,
        description="The pipelines whose tables the query reads, below the same root; views may be among them. Required.",
    )
    refresh: Refresh = Field(
        default="on_change",
        description="When Dagster or a SQL job refreshes it. {every: 5m}: at that interval; on_change: when an input has changed; manual: only by 'ebbtide run' or REFRESH MATERIALIZED VIEW. Default: on_change.",
    )
    ttl: Ttl | None = Field(
        default=None,
        description="Time to live of tombstones, by event time, which is the time of a step: '30d', or the fields of StateTtlConfig. A view has no late changes, so any value is safe. Default: tombstones never expire.",
    )

    @model_validator(mode="after")
    def _is_a_view(self) -> Self:
        repeated = [name for name in self.inputs if self.inputs.count(name) > 1]
        refuse("inputs", repeated, "each once")
        own = [name for name in self.inputs if name == self.name]
        refuse("inputs", own, "other pipelines than the view itself")
        refuse("schema", list(self.table.defaults), "columns without DEFAULT: the query gives all of them")
        required = [field.name for field in self.table.columns if not field.nullable]
        strict = [f"{name} NOT NULL" for name in required if name not in self.key]
        refuse("schema", strict, "NOT NULL only in columns of the key")
        maps = [field.name for field in self.table.columns if _has_map(field.type)]
        refuse("schema", maps, "columns without MAP, which cannot be compared: map_entries converts one to an array")
        if self.ttl is not None and self.ttl.expire_live:
            refuse("ttl.expire_live", [True], "false: rows leave a view by its query")
        if "stream" in self.schedules.model_fields_set:
            refuse("schedules.stream", [self.schedules.stream], "none: refresh says when")
        refuse("columns.renamed_from", list(self.renamed.values()), "none: a view is computed again")
        return self

    @property
    def is_view(self) -> bool:
        """See `Traits`."""
        return True

    @property
    def sequence(self) -> tuple[str, ...]:
        """Changes are ordered by the step that computed them."""
        return (SequenceColumns.STEP,)

    @property
    def needs_event_time(self) -> bool:
        """Every change has one, the time of its step."""
        return False

    @property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """Its only state's time to live, if it has one."""
        return {} if self.ttl is None else {None: self.ttl}

    @property
    def takes_truncate(self) -> bool:
        """Its inputs show a TRUNCATE as deletes."""
        return False

    @property
    def stream_cron(self) -> str | None:
        """Cron expression of Dagster's schedule: the interval of `refresh`."""
        return self.refresh.cron if isinstance(self.refresh, RefreshEvery) else None

    @property
    def tables_read(self) -> tuple[str, ...]:
        """The pipelines whose sinks it reads."""
        return tuple(self.inputs)

    @property
    def sql(self) -> str:
        """The query that computes its rows."""
        return self.query.strip()

    @property
    def column_sources(self) -> dict[str, list[str]]:
        """None: only Spark's analyzer knows the sources of its columns."""
        return {}

    @property
    def query_hash(self) -> str:
        """Hash that shows a change of the query."""
        text = " ".join([*self.inputs, self.query.strip()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def source_path(self) -> str:
        """None: its inputs are below the root."""
        return ""

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that stored state depends on; another query is applied by the next run."""
        columns = [f"{field.name} {field.type}" for field in self.table.columns]
        ttl = {} if self.ttl is None else {"": self.ttl.state_contract}
        own = {
            "key": self.key,
            "order": [SequenceColumns.STEP],
            "columns": columns,
            "ttl": ttl,
        }
        return super().identity | own

    def located(self, path: Path) -> Self:
        """Return the spec as it is: it names no path."""
        return self


def _has_map(type_: pa.DataType) -> bool:
    """Return whether a type is a MAP, or has one in it."""
    if pa.types.is_map(type_):
        return True
    return any(_has_map(field.type) for field in inner_fields(type_))
