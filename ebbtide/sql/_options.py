"""Options of WITH as fields of a pipeline's spec.

An option is the dotted name of a field (`quarantine.max_rate`). Fields of the source have no prefix `source.` (`path`, `topic`,
`start.timestamp`; `properties.sasl.username` is the property `sasl.username`), nor have those of another package's source. `format` is
the type of the format, and `sequence` has the columns that order changes; without it they apply in order of arrival, or as `order` says. A value is the
text that YAML would have; lists and objects are `[a, b]` and `{a: b}`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

import yaml
from pydantic import ValidationError

from ebbtide import MaterializedView, UpsertPipeline
from ebbtide.errors import ConfigError, SqlError
from ebbtide.redaction import REFERENCE, is_credential
from ebbtide.spec import field_path, read_yaml
from ebbtide.sql._statements import Option, Options

SEQUENCE = "sequence"
_FROM_STATEMENT = ("name", "schema", "key", "description", "source", "transform")
"""Fields that a statement has outside of WITH."""
_FROM_VIEW = ("name", "schema_", "key", "description", "query", "inputs", "refresh")
PROPERTIES = "properties"
"""First word of the options that name a property of the Kafka client, dots included."""
OF_CLIENTS = (f"{PROPERTIES}.", "registry.")
"""Prefixes of the options that may have a reference to a variable as a credential."""
OF_SOURCE = UpsertPipeline.source_fields()
"""Options that are fields of the spec's `source`."""
_OF_PIPELINE = {*UpsertPipeline.model_fields} - {*_FROM_STATEMENT} - OF_SOURCE
OPTIONS = {
    "source": sorted({*OF_SOURCE, SEQUENCE, *_OF_PIPELINE}),
    "table": sorted({SEQUENCE, *_OF_PIPELINE}),
    "view": [name for name in MaterializedView.model_fields if name not in _FROM_VIEW],
}
"""First words of the options of each kind of declaration: the fields of its spec that its statement has only in WITH."""


def spec_field(option: str, of_source: Collection[str] = OF_SOURCE) -> tuple[str, ...]:
    """Return the path of an option's field in the spec.

    Args:
        option: Its name.
        of_source: First words of the options that are fields of the spec's `source`.

    Example:
        >>> spec_field("topic"), spec_field("format"), spec_field("checks.expiry_grace")
        (('source', 'topic'), ('format', 'type'), ('checks', 'expiry_grace'))
        >>> spec_field("properties.sasl.username"), spec_field("start.timestamp")
        (('source', 'properties', 'sasl.username'), ('source', 'start', 'timestamp'))
    """
    first, dot, rest = option.partition(".")
    if first in of_source and not dot:
        return "source", option
    if first == PROPERTIES:
        return "source", PROPERTIES, rest
    if first in of_source:
        return "source", *option.split(".")
    if option == "format":
        return "format", "type"
    if option == SEQUENCE:
        return "order", SEQUENCE
    return tuple(option.split("."))


def attributes_of(*options: Mapping[str, str]) -> dict[str, Any]:
    """Return options as attributes of a spec.

    Args:
        *options: Options of the source, and of the table.

    Raises:
        SqlError: a field is set twice, an option contradicts another, or no package has a source of this type.
    """
    of_source = _of_source({name: value for given in options for name, value in given.items()})
    attributes: dict[str, Any] = {}
    known: set[tuple[str, ...]] = set()
    all_options = chain.from_iterable(given.items() for given in options)
    for option, value in all_options:
        field = spec_field(option, of_source)
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
    """Return options with the dotted names of fields as attributes of a spec."""
    attributes: dict[str, Any] = {}
    for option, text in options.items():
        field = tuple(option.split("."))
        value = _value(option, text)
        _put(attributes, field, value)
    return attributes


def refuse_unfit(given: Options, of: str) -> None:
    """Refuse credentials, and options that are not fields of the declared object.

    Args:
        given: Options of the statement.
        of: Kind of the object: `source`, `table` or `view`.

    Raises:
        SqlError: an option is refused; the message has its place.
    """
    allowed = OPTIONS[of]
    if of == "source":
        allowed = sorted({*allowed, *_of_source(texts(given))})
    clients = OF_CLIENTS if of == "source" else ()
    _refuse_credentials({name: option for name, option in given.items() if not _is_reference(name, option, clients)})
    for name, option in given.items():
        first, dot, _ = name.partition(".")
        is_known = first in allowed and not (dot and first == SEQUENCE)
        if not is_known:
            raise SqlError.of(
                f"There is no option '{name}' of a {of}, at {option.place}.",
                allowed=", ".join(allowed),
                next_step="docs/reference/spec.md describes each.",
            )


def _is_reference(name: str, option: Option, clients: tuple[str, ...]) -> bool:
    """Return whether an option of a client names a variable in the place of a value."""
    return name.startswith(clients) and REFERENCE.fullmatch(option.value) is not None


def _refuse_credentials(given: Options) -> None:
    for name, option in given.items():
        if is_credential(name):
            raise SqlError.of(
                f"The option '{name}' at {option.place} is a credential.",
                allowed="options without secrets",
                next_step="Give it to Spark by its environment (docs/explanation/security.md).",
            )


def parameters(given: Options) -> dict[str, Any]:
    """Return the parameters of a function's constructor, each read as YAML: `0.1` is a number.

    Raises:
        SqlError: one cannot be read, or is a credential.
    """
    _refuse_credentials(given)
    found = {}
    for name, option in given.items():
        try:
            found[name] = yaml.safe_load(option.value)
        except yaml.YAMLError as error:
            raise SqlError.of(
                f"The parameter '{name}' at {option.place} cannot be read.", got=option.value, allowed="YAML"
            ) from error
    return found


def explained(error: ValidationError | ConfigError, given: Options) -> SqlError:
    """Return an error of a spec as an error of its statement, with the places of the options."""
    if isinstance(error, ConfigError):
        return SqlError(str(error))
    faults = []
    for details in error.errors(include_url=False, include_input=False):
        path = field_path(details["loc"])
        message = details["msg"].removeprefix("Value error, ")
        field = ".".join(path) + _place_of(path, given)
        faults.append(f"{field}: {message}" if path else message)
    return SqlError.of("The statement is not usable.", got="; ".join(faults))


def texts(given: Options) -> dict[str, str]:
    """Return the values of options, without their places."""
    return {name: option.value for name, option in given.items()}


def flattened(attributes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield attributes of a spec as options: the inverse of `attributes_of`."""
    for name, value in attributes.items():
        path = f"{prefix}{name}"
        is_outer = isinstance(value, Mapping) and bool(value)
        if is_outer:
            yield from flattened(value, f"{path}.")
            continue
        text = value if isinstance(value, str) else _one_line(value)
        yield _option_name(path), text


def _of_source(options: Mapping[str, str]) -> frozenset[str]:
    """Return the first words of options that are fields of the spec's `source`: the package of another source names its own.

    Raises:
        SqlError: no package has a source of the type that the options name.
    """
    try:
        return UpsertPipeline.source_fields(options.get("type"))
    except ValueError as error:
        raise SqlError(f"There is no such source. {error}") from error


def _put(attributes: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    # The path is followed from the outermost field, and objects are made on the way. A value in the place of an object, or an object
    # in the place of a value, is a contradiction of two options.
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
    return SqlError.of(
        f"The option '{'.'.join(path)}' contradicts '{other}'.",
        got=value,
        allowed="one of them",
    )


def _value(option: str, text: str) -> Any:
    """Return the value of an option; the model of the spec converts texts to numbers, truth values and durations."""
    if text.startswith(("[", "{")):
        try:
            return read_yaml(text)
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            raise SqlError.of(
                f"The option '{option}' is not a list or object.",
                got=text,
            ) from error
    if text == "null":
        return None
    if option == SEQUENCE:
        return [name.strip() for name in text.split(",")]
    return text


def _place_of(path: tuple[str, ...], given: Options) -> str:
    of_source = _of_source(texts(given))
    for name, option in given.items():
        field = spec_field(name, of_source)
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
