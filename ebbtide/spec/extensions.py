"""Parts of a spec that other packages bring along, found by entry points: the name of one is the part's `type`.

```toml
[project.entry-points."ebbtide.sinks"]
documents = "my_project.documents:Documents"
```
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ebbtide.sinks.sink import Sink
from ebbtide.spec.parts import SpecPart

SinkClass = type[Sink]
SINKS = "ebbtide.sinks"
NEXT_STEP = "See docs/extending.md."


def kind_of_sink(given: Any) -> str:
    """Return whether a sink is ours or another package's, as a spec's fields or as a part."""
    type_ = given.get("type", "delta") if isinstance(given, Mapping) else getattr(given, "type", "delta")
    return "delta" if type_ == "delta" else "other"


class OtherSink(SpecPart):
    """A sink that another package brings along; the other fields are options of its own."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(
        description="Name of an entry point of the group 'ebbtide.sinks', whose class is the sink (docs/extending.md). Required."
    )

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        _ = self.options
        return self

    @cached_property
    def kind(self) -> SinkClass:
        """Its class."""
        return extension(SINKS, self.type, Sink)

    @cached_property
    def options(self) -> BaseModel:
        """What is given beside its type, as the class models it."""
        return options_of(self.kind.Options, self.model_extra or {}, "sink")


def options_of(model: type[BaseModel], given: dict[str, Any], part: str) -> BaseModel:
    """Return the options of a part.

    Args:
        model: The part's own model of them.
        given: What stands beside the part's type.
        part: The field of the spec.

    Raises:
        ValueError: they are not usable. The values are not shown: they may be credentials.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        wrong = [f"{part}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ValueError("; ".join(wrong)) from None


@lru_cache(maxsize=64)
def extension(group: str, name: str, base: type[Any]) -> type[Any]:
    """Return the class that an installed package names.

    Args:
        group: The group of entry points.
        name: The entry point's.
        base: What the class must derive from.

    Raises:
        ValueError: no package names one, it cannot be loaded, or it is another class.
    """
    points = {point.name: point for point in entry_points(group=group)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none is installed"
        raise ValueError(
            f"type: got {name}; allowed: a built-in one, or an entry point of the group '{group}' ({known})"
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
        raise ValueError(f"type: '{point.value}' is no subclass of {base.__module__}.{base.__name__}. {NEXT_STEP}")
    found: type[Any] = kind
    return found
