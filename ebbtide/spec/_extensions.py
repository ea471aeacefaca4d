"""Parts of a spec that other packages provide by entry points; the entry point's name is the part's `type`.

```toml
[project.entry-points."ebbtide.sinks"]
documents = "my_project.documents:Documents"
```

Groups: `ebbtide.sources`, `ebbtide.formats`, `ebbtide.sinks`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from ebbtide import formats, sources, tables
from ebbtide.formats import TOOLS, Coding
from ebbtide.redaction import printable
from ebbtide.spec._parts import FormatPart, Reads, SpecPart, TimeUnit
from ebbtide.spec._positioned import PositionedPart

if TYPE_CHECKING:
    import pyarrow as pa

    from ebbtide.formats import Format
    from ebbtide.sources import PositionedSource, SourceSettings
    from ebbtide.tables import Sink

    SourceClass = type[PositionedSource]
    FormatClass = type[Format]
    SinkClass = type[Sink]
    """An alias: in a model with a field `type`, the word means the field."""

SOURCES = "ebbtide.sources"
FORMATS = "ebbtide.formats"
SINKS = "ebbtide.sinks"
BUILT_IN: Mapping[str, Sequence[str]] = {
    SOURCES: ("files", "kafka", "spark"),
    FORMATS: ("debezium", "plain", "mapped", *TOOLS),
    SINKS: ("delta",),
}
"""Group to the built-in types; the defaults are a file source and a Delta sink."""
OTHER = "other"
"""The tag of a part from another package."""
TOOL = "tool"
"""The tag of all formats of tools, which share one model."""
NEXT_STEP = "See docs/how-to/extending.md."


def kind_in(group: str, default: str = "") -> Callable[[Any], str]:
    """Return a function that returns the tag of a part or of its fields: a built-in type, or `OTHER`.

    Args:
        group: The group of entry points.
        default: The type of a part without one.
    """
    built_in = BUILT_IN[group]

    def kind_of(given: Any) -> str:
        type_ = given.get("type", default) if isinstance(given, Mapping) else getattr(given, "type", default)
        if group == FORMATS and type_ in TOOLS:
            return TOOL
        return str(type_) if not type_ or type_ in built_in else OTHER

    return kind_of


def _of_another_package(group: str) -> dict[str, JsonValue]:
    """Exclude the built-in types in the JSON schema. `dg check defs` requires that a part fits only one model."""
    built_in: list[JsonValue] = [*BUILT_IN[group]]
    return {"not": {"enum": built_in}}


class OtherPart(SpecPart):
    """A part from another package. Its unknown fields are options of the package's class.

    Attributes:
        PART: The field of the spec.
    """

    model_config = ConfigDict(extra="allow")
    PART: ClassVar[str]

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        _ = self.options
        return self

    @property
    @abstractmethod
    def kind(self) -> Any:
        """Its class."""

    @cached_property
    def options(self) -> BaseModel:
        """The options, as the class models them."""
        return options_of(self.kind.Options, self.model_extra or {}, self.PART)


class OtherSource(PositionedPart, OtherPart):
    """A source from another package, read by position. All other fields are its options."""

    PART: ClassVar[str] = "source"

    type: str = Field(
        json_schema_extra=_of_another_package(SOURCES),
        description="Name of an entry point of the group 'ebbtide.sources', whose class is the source (docs/how-to/extending.md). Required.",
    )

    @property
    def topic(self) -> None:
        """None: records are not selected by topic."""
        return None

    @cached_property
    def kind(self) -> SourceClass:
        """Its class."""
        return extension(SOURCES, self.type, sources.PositionedSource)

    def with_settings(self, settings: SourceSettings) -> PositionedSource:
        """See `PositionedPart.with_settings`."""
        make: Callable[..., PositionedSource] = self.kind
        return make(self.options, settings)


class OtherFormat(FormatPart, OtherPart):
    """A format from another package. All other fields are its options."""

    PART: ClassVar[str] = "format"

    type: str = Field(
        json_schema_extra=_of_another_package(FORMATS),
        description="Name of an entry point of the group 'ebbtide.formats', whose class is the format (docs/how-to/extending.md). Required.",
    )
    time_units: dict[str, TimeUnit] = Field(
        default_factory=dict, description="Column to the unit of its integers: ms, us, ns. Default: us."
    )

    @cached_property
    def kind(self) -> FormatClass:
        """Its class."""
        return extension(FORMATS, self.type, formats.Format)

    def decoder(self, reads: Reads) -> Format:
        """See `FormatPart.decoder`."""
        make: Callable[..., Format] = self.kind
        return make(self.options, reads.columns, reads.key)

    def coding(self, column: str) -> Coding:
        """See `FormatPart.coding`."""
        return Coding.of(None, self.time_units.get(column, "us"))


class OtherSink(OtherPart):
    """A sink from another package. All other fields are its options."""

    PART: ClassVar[str] = "sink"

    type: str = Field(
        json_schema_extra=_of_another_package(SINKS),
        description="Name of an entry point of the group 'ebbtide.sinks', whose class is the sink (docs/how-to/extending.md). Required.",
    )

    @cached_property
    def kind(self) -> SinkClass:
        """Its class."""
        return extension(SINKS, self.type, tables.Sink)

    def opened(self, location: str, columns: pa.Schema, key: Sequence[str]) -> Sink:
        """Return the sink.

        Args:
            location: Its folder.
            columns: The user's columns.
            key: Names of the key's columns.
        """
        make: Callable[..., Sink] = self.kind
        return make(self.options, location, columns, tuple(key))


class OtherOutput(OtherSink):
    """A further output: a sink of another package, which shows the rows that the pipeline's sink shows. All other fields are its options."""

    PART: ClassVar[str] = "outputs"


def options_of(model: type[BaseModel], given: dict[str, Any], part: str) -> BaseModel:
    """Return the options of a part.

    Args:
        model: The part's model of its options.
        given: The fields other than the part's type.
        part: The field of the spec.

    Raises:
        ValueError: they are not usable. The values are not shown: they may be credentials.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        wrong = [f"{part}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ValueError("; ".join(wrong)) from None


def source_option_names(type_: str) -> frozenset[str]:
    """Return the option names of a source's class, which another package adds to its fields; none for a built-in source.

    Args:
        type_: The type of a spec's `source`.

    Raises:
        ValueError: there is no source of this type.
    """
    if type_ in BUILT_IN[SOURCES]:
        return frozenset()
    kind: SourceClass = extension(SOURCES, type_, sources.PositionedSource)
    return frozenset(kind.Options.model_fields)


@lru_cache(maxsize=64)
def extension(group: str, name: str, base: type[Any]) -> type[Any]:
    """Return the class that an installed package names.

    Args:
        group: The group of entry points.
        name: The entry point's name.
        base: What the class must derive from.

    Raises:
        ValueError: no package has it, it cannot be loaded, or it is of another class.
    """
    # Entry points of this package are not for specs, such as the source of materialized views.
    points = {point.name: point for point in entry_points(group=group) if not point.value.startswith("ebbtide.")}
    if name not in points:
        built_in = ", ".join(f"'{each}'" for each in BUILT_IN[group])
        known = ", ".join(sorted(points)) or "none is installed"
        raise ValueError(
            f"type: got {printable(name)}; allowed: {built_in}, or an entry point of the group '{group}' ({known})"
        )
    point = points[name]
    try:
        kind = point.load()
    except Exception as error:
        raise ValueError(
            f"type: '{point.value}' cannot be loaded: {type(error).__name__}: {error}. {NEXT_STEP}"
        ) from error
    is_usable = isinstance(kind, type) and issubclass(kind, base)
    if not is_usable:
        raise ValueError(f"type: '{point.value}' is not a subclass of {base.__module__}.{base.__name__}. {NEXT_STEP}")
    found: type[Any] = kind
    return found
