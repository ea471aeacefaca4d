"""Stateful pipelines: a user's function runs per key, with expiring state, and writes a table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from inspect import signature
from typing import Any, ClassVar, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from ebbtide.changelog import RowKind
from ebbtide.ddl import TableSchema, as_compared, is_exact, parse_ddl
from ebbtide.errors import ConfigError
from ebbtide.keyed_state import MapStateDescriptor, StatefulFunction, StateTtlConfig, StateVisibility, Ttl
from ebbtide.operators import StateSpec
from ebbtide.redaction import is_credential, printable
from ebbtide.spec._fitting import RESERVED_COLUMNS
from ebbtide.spec._parts import refuse
from ebbtide.spec._pipeline import Pipeline


class StatefulPipeline(Pipeline):
    """A changelog source, a function that runs key by key, and the table that it writes.

    Example:
        >>> spec = StatefulPipeline(
        ...     name="last_seen", source={"path": "in"}, format={"type": "debezium"}, key=["customer_id"],
        ...     schema="id BIGINT, customer_id BIGINT", function="ebbtide.functions:LastSeen", ttl={"seen": "30d"},
        ... )
        >>> spec.sink_table.columns.names
        ['customer_id', 'last_seen', 'changes']
    """

    FUNCTION_PARTS: ClassVar = ("function", "options", "kinds")
    """Parts of the identity that decide the treatment of a row. If they change, state and sink stay, and later rows are treated in the new way."""

    function: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="The function: 'module:Class', a subclass of ebbtide.StatefulFunction. Required.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the function's constructor. Default: none."
    )
    ttl: dict[str, Ttl | None] = Field(
        default_factory=dict,
        description="State to its time to live, '30d' or the fields of StateTtlConfig, replacing the one that the function declares; null: entries never expire. Default: those declared.",
    )
    kinds: list[RowKind] = Field(
        default_factory=lambda: list(RowKind),
        min_length=1,
        description="Kinds of changes that the function gets, of +I, -U, +U, -D; other kinds are skipped. Default: all.",
    )
    output_key: list[str] | None = Field(
        default=None,
        description="The sink's primary key: columns of the function's output, including the key. Default: the key.",
    )

    @field_validator("function")
    @classmethod
    def _is_there(cls, value: str) -> str:
        _class_of(value)
        return value

    @model_validator(mode="after")
    def _states_and_output_fit(self) -> Self:
        if self.schema_evolution_mode == "evolve":
            allowed = "ignore, quarantine, fail: a function names the columns that it reads"
            refuse("schema_evolution_mode", ["evolve"], allowed)
        declared = self.function_class.descriptors()
        refuse(
            "ttl",
            [n for n in self.ttl if n not in declared],
            f"states of {self.function}: {', '.join(declared) or 'none'}",
        )
        try:
            signature(self.function_class).bind(**self.options)
        except TypeError as error:
            refuse("options", [f"{', '.join(self.options) or 'none'} ({error})"], f"arguments of {self.function}")
        output = self.sink_table.columns
        taken = [n for n in output.names if as_compared(n) in RESERVED_COLUMNS]
        refuse("function", taken, f"an output of {self.function} without names that Ebbtide reserves")
        compared = [as_compared(n) for n in output.names]
        refuse(
            "function",
            [n for n in output.names if compared.count(as_compared(n)) > 1],
            f"an output of {self.function} that names no column twice; Spark ignores case",
        )
        refuse(
            "output_key",
            [k for k in self.sink_key if k not in output.names],
            f"columns of the function's output: {', '.join(output.names)}",
        )
        refuse(
            "output_key", [k for k in self.key if k not in self.sink_key], f"the key ({', '.join(self.key)}) and more"
        )
        taken = [n for n in self.table.columns.names if re.match(r"_(key|value)_|_(state|sub|ttl_ms|out)$", n)]
        refuse("schema", taken, "names that Ebbtide does not reserve")
        for name, spec in self.states.items():
            self._refuse_unfit(name, spec)
        return self

    def _refuse_unfit(self, name: str, spec: StateSpec) -> None:
        if spec.ttl is None:
            return
        if spec.ttl.expire_live:
            refuse(f"ttl.{name}.expire_live", [True], "false: it belongs to upsert pipelines")
        cleanup = spec.ttl.cleanup
        if self.function_class.handles_expiry():
            self._refuse_without_tick(name, spec.ttl)
        compaction = cleanup.compaction_filter
        queries = "query_time_after_num_entries"
        if compaction is not None and queries in compaction.model_fields_set:
            refuse(
                f"ttl.{name}.cleanup.compaction_filter.{queries}",
                [compaction],
                "nothing: on Delta a compaction uses one clock, that of its step",
            )
        if cleanup.incremental:
            refuse(
                f"ttl.{name}.cleanup.incremental",
                [cleanup.incremental],
                "nothing: on Delta a step reads only the keys that it touches; the tick that ends a run looks at all",
            )

    def _refuse_without_tick(self, name: str, ttl: StateTtlConfig) -> None:
        """Refuse the settings of a state under which no tick hands its expired entries to `on_expire`, or reads come first."""
        if not (ttl.cleanup.background or ttl.cleanup.timers):
            allowed = f"true, or timers: true, as {self.function} has on_expire: it gets what a tick expires"
            refuse(f"ttl.{name}.cleanup.background", [False], allowed)
        if ttl.state_visibility is not StateVisibility.NEVER_RETURN_EXPIRED:
            allowed = (
                f"NEVER_RETURN_EXPIRED, as {self.function} has on_expire: it gets expired entries before a read could"
            )
            refuse(f"ttl.{name}.state_visibility", [str(ttl.state_visibility)], allowed)

    @property
    def runs_user_code(self) -> bool:
        """See `Pipeline`: the function."""
        return True

    @property
    def function_class(self) -> type[StatefulFunction]:
        """The function."""
        return _class_of(self.function)

    @cached_property
    def sink_table(self) -> TableSchema:
        """The key and the function's output, or with `*` the source's columns; columns of the key are not nullable."""
        key = set(self.sink_key)
        ddl = getattr(self.function_class, "output", None)
        if isinstance(ddl, str) and (more := re.fullmatch(r"\*((?:\s*,\s*\w+\s+\*)*)", ddl)):
            structs = [pa.field(name, self._row_type) for name in re.findall(r"\w+", more[1])]
            table = replace(self.table, columns=pa.schema([*self.table.columns, *structs]))
        else:
            if not isinstance(ddl, str):
                raise ValueError(
                    f"function: got {self.function} without output; allowed: its columns as Spark DDL, or '*', '*, NAME *'"
                )
            try:
                table = parse_ddl(ddl)
            except ConfigError as error:
                raise ValueError(f"function: the output of {self.function} is not usable: {error}") from error
            refuse(
                "function",
                [n for n in table.columns.names if n in self.key],
                "output without columns of the key, which are added",
            )
            keys = [self.table.columns.field(k) for k in self.key]
            table = replace(table, columns=pa.schema([*keys, *table.columns]))
        return replace(
            table, columns=pa.schema([f.with_nullable(f.nullable and f.name not in key) for f in table.columns])
        )

    @property
    def _row_type(self) -> pa.StructType:
        return pa.struct([f.with_nullable(True) for f in self.table.columns])

    @property
    def sink_key(self) -> list[str]:
        """The sink's primary key."""
        return self.output_key or self.key

    @property
    def copied_columns(self) -> frozenset[str]:
        """The sink's columns whose values are a column of the source, unchanged: other values of the function are unknown."""
        return frozenset(self.key)

    @property
    def migrates(self) -> frozenset[str]:
        """Parts of `identity` that a migration can change."""
        return frozenset({"ttl", "states", *self.FUNCTION_PARTS})

    @property
    def kinds_taken(self) -> frozenset[RowKind]:
        """Kinds of changes that are not skipped."""
        return frozenset(self.kinds)

    @property
    def takes_truncate(self) -> bool:
        """Return whether a TRUNCATE can be applied: its meaning for a function is unknown."""
        return False

    @cached_property
    def states(self) -> dict[str, StateSpec]:
        """The function's states by name, their types resolved."""
        states = {}
        for name, declared in self.function_class.descriptors().items():
            key = None
            if isinstance(declared, MapStateDescriptor):
                key = self._map_key(name, declared.key_type)
            value = self._row_type if declared.has_source_rows else _type(name, declared.of)
            ttl = self.ttl.get(name, declared.ttl)
            if ttl is not None and not ttl.enabled:
                ttl = None
            states[name] = StateSpec(declared.kind, value, key, ttl)
        return states

    @property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """State to its time to live, of those that expire."""
        return {name: spec.ttl for name, spec in self.states.items() if spec.ttl is not None}

    def _map_key(self, name: str, ddl: str) -> pa.DataType:
        type_ = _type(f"{name}.key_type", ddl)
        if not is_exact(type_):
            refuse(f"{name}.key_type", [ddl], "an exact type: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT")
        return type_

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that stored state depends on; a change of one needs a refresh, or a migration if `migrates` names it."""
        states = self.states
        options = _without_credentials(self.options)
        return {
            **super().identity,
            "function": self.function,
            "options": json.loads(json.dumps(options, default=str)),
            "kinds": sorted(kind.value for kind in self.kinds_taken),
            "key": self.key,
            "output": [f"{f.name} {f.type}" for f in self.sink_table.columns],
            "output_key": self.sink_key,
            "states": {
                n: [s.kind.__name__, str(s.value), None if s.key is None else str(s.key)] for n, s in states.items()
            },
            "ttl": {name: spec.ttl.state_contract for name, spec in states.items() if spec.ttl is not None},
        }

    def misfits(self, stored: Mapping[str, Any]) -> list[str]:
        """Return the parts that do not fit; an earlier release may have stored an option that now counts as a credential."""
        options = _without_credentials(stored.get("options") or {})
        return super().misfits({**stored, "options": options})

    @classmethod
    def imports(cls, attributes: Mapping[str, Any]) -> bool:
        """Return True: its function may belong to the spec's project."""
        return True


def _without_credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if not is_credential(name)}


def _class_of(function: str) -> type[StatefulFunction]:
    module, _, name = function.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a module may raise anything
        why = printable(str(error))
        raise ValueError(f"function: got {function}, {why}; allowed: 'module:Class' that can be imported") from error
    if not (isinstance(found, type) and issubclass(found, StatefulFunction)):
        raise ValueError(f"function: got {function}; allowed: a subclass of ebbtide.StatefulFunction")  # noqa: TRY004 - as above
    return found


def _type(field: str, ddl: str) -> pa.DataType:
    try:
        return parse_ddl(f"v {ddl}").columns.field(0).type
    except ConfigError as error:
        raise ValueError(f"{field}: {error}") from error
