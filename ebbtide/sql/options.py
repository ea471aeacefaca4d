"""Options of WITH: where each belongs in a pipeline's spec.

An option is a field of the spec by its dotted name (`quarantine.max_rate`). Fields of the source stand without `source.`
(`path`, `topic`, `start.timestamp`; `properties.sasl.username` is the property `sasl.username`), `format` is the format's type, `sequence` the columns that order changes; without it they apply in order of
arrival. A value is what YAML has there, as text; lists and objects as `[a, b]`, `{a: b}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from ebbtide import MaterializedView, UpsertPipeline
from ebbtide.errors import ConfigError, SqlError
from ebbtide.redaction import REFERENCE, is_credential
from ebbtide.spec.kafka import KafkaSource
from ebbtide.spec.parts import FileSource
from ebbtide.spec.reading import field_path
from ebbtide.sql.statements import Options

SEQUENCE = "sequence"
_FROM_STATEMENT = ("name", "schema", "key", "description", "source", "order", "transform")
"""Fields that a statement says by itself."""
_FROM_VIEW = ("name", "schema_", "key", "description", "query", "inputs", "refresh")
PROPERTIES = "properties"
"""Options whose names go on with that of a client's property, dots and all."""
OF_CLIENTS = (f"{PROPERTIES}.", "registry.")
"""What options begin with that may name a variable in a credential's place."""
OF_SOURCE = frozenset({*FileSource.model_fields, *KafkaSource.model_fields})
"""Options that are fields of the spec's `source`."""
_OF_PIPELINE = {*UpsertPipeline.model_fields} - {*_FROM_STATEMENT} - OF_SOURCE
OPTIONS = {
    "source": sorted({*OF_SOURCE, SEQUENCE, *_OF_PIPELINE}),
    "table": sorted({SEQUENCE, *_OF_PIPELINE}),
    "view": [name for name in MaterializedView.model_fields if name not in _FROM_VIEW],
}
"""First words of the options that each kind of declaration takes: fields of its spec that its statement does not say by itself."""


def spec_field(option: str) -> tuple[str, ...]:
    """Return the path in the spec of what an option sets.

    Example:
        >>> spec_field("topic"), spec_field("format"), spec_field("checks.expiry_grace")
        (('source', 'topic'), ('format', 'type'), ('checks', 'expiry_grace'))
        >>> spec_field("properties.sasl.username"), spec_field("start.timestamp")
        (('source', 'properties', 'sasl.username'), ('source', 'start', 'timestamp'))
    """
    first, dot, rest = option.partition(".")
    if first in OF_SOURCE and not dot:
        return "source", option
    if first == PROPERTIES:
        return "source", PROPERTIES, rest
    if first in OF_SOURCE:
        return "source", *option.split(".")
    if option == "format":
        return "format", "type"
    if option == SEQUENCE:
        return "order", SEQUENCE
    return tuple(option.split("."))


def attributes_of(*options: Mapping[str, str]) -> dict[str, Any]:
    """Return options as a part of a spec's attributes.

    Args:
        *options: Those of the source, those of the table.

    Raises:
        SqlError: one is set by both, or contradicts another.
    """
    attributes: dict[str, Any] = {}
    known: set[tuple[str, ...]] = set()
    for given in options:
        for option, value in given.items():
            field = spec_field(option)
            if field in known:
                raise SqlError.of(
                    f"The option '{option}' is set twice.",
                    got=".".join(field),
                    allowed="once, by the source or by the table",
                )
            known.add(field)
            _put(attributes, field, _value(option, value))
    attributes.setdefault("order", "arrival")
    return attributes


def nested(options: Mapping[str, str]) -> dict[str, Any]:
    """Return options by their dotted names as a part of a spec's attributes."""
    attributes: dict[str, Any] = {}
    for option, value in options.items():
        _put(attributes, tuple(option.split(".")), _value(option, value))
    return attributes


def refuse_unfit(given: Options, of: str) -> None:
    """Refuse options that are no fields, or not of what the statement declares.

    Args:
        given: The options.
        of: What they are of: `source`, `table` or `view`.

    Raises:
        SqlError: with the option's place.
    """
    for name, option in given.items():
        is_reference = of == "source" and name.startswith(OF_CLIENTS) and REFERENCE.fullmatch(option.value)
        if is_credential(name) and not is_reference:
            raise SqlError.of(
                f"The option '{name}' at {option.place} is a credential.",
                allowed="options without secrets",
                next_step="Give it to Spark by its environment (docs/explanation/security.md).",
            )
        allowed = OPTIONS[of]
        first, dot, _ = name.partition(".")
        is_known = first in allowed and not (dot and first == SEQUENCE)
        if not is_known:
            raise SqlError.of(
                f"There is no option '{name}' of a {of}, at {option.place}.",
                allowed=", ".join(allowed),
                next_step="docs/reference/spec.md describes each.",
            )


def explained(error: ValidationError | ConfigError, given: Options) -> SqlError:
    """Return an error of a spec as one of the statement that it was made of, with the place of the option."""
    if isinstance(error, ConfigError):
        return SqlError(str(error))
    lines = []
    for details in error.errors(include_url=False, include_input=False):
        path = field_path(details["loc"])
        field = ".".join(path) + _place_of(path, given)
        lines.append(f"{field}: " * bool(path) + details["msg"].removeprefix("Value error, "))
    return SqlError.of("The statement is not usable.", got="; ".join(lines))


def texts(given: Options) -> dict[str, str]:
    """Return the values alone."""
    return {name: option.value for name, option in given.items()}


def flattened(attributes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield attributes of a spec as options: what `attributes_of` makes them of."""
    for name, value in attributes.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{path}.")
        else:
            is_text = isinstance(value, str)
            yield _option_name(path), value if is_text else _one_line(value)


def _put(attributes: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *outer, last = path
    inner = attributes
    for name in outer:
        deeper = inner.setdefault(name, {})
        if not isinstance(deeper, dict):
            raise _contradiction(path, name, deeper)
        inner = deeper
    if last in inner:
        raise _contradiction(path, last, inner[last])
    inner[last] = value


def _contradiction(path: tuple[str, ...], other: str, value: Any) -> SqlError:
    return SqlError.of(f"The option '{'.'.join(path)}' contradicts '{other}'.", got=value, allowed="one of them")


def _value(option: str, text: str) -> Any:
    """Return an option's value; the spec's model turns texts into numbers, truth values and durations."""
    if text.startswith(("[", "{")):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SqlError.of(f"The option '{option}' is no list or object.", got=text) from error
    if text == "null":
        return None
    if option == SEQUENCE:
        return [name.strip() for name in text.split(",")]
    return text


def _place_of(path: tuple[str, ...], given: Options) -> str:
    for name, option in given.items():
        field = spec_field(name)
        n_shared = min(len(field), len(path))
        if path and field[:n_shared] == path[:n_shared]:
            return f" at {option.place}"
    return ""


def _option_name(path: str) -> str:
    if path == "format.type":
        return "format"
    if path == "order.sequence":
        return SEQUENCE
    return path.removeprefix("source.")


def _one_line(value: Any) -> str:
    dumped: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return dumped.removesuffix("\n").removesuffix("\n...")
