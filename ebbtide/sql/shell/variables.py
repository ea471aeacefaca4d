"""`${name}` in statements: replaced by what `-D name=value` says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ebbtide.errors import ConfigError, SqlError

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def variables(definitions: Iterable[str]) -> dict[str, str]:
    """Read definitions, `name=value`.

    Raises:
        ConfigError: one is not of this form, or a name is there twice.
    """
    found: dict[str, str] = {}
    for definition in definitions:
        name, equals, value = definition.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ConfigError.of(
                "-D defines no variable.",
                got=definition,
                allowed="name=value",
            )
        if name in found:
            raise ConfigError.of(f"-D defines the variable '{name}' twice.", allowed="each once")
        found[name] = value
    return found


def substituted(text: str, values: Mapping[str, str]) -> str:
    """Replace the variables of a statement.

    Raises:
        SqlError: one is not defined.

    Example:
        >>> substituted("SELECT * FROM ${table}", {"table": "orders"})
        'SELECT * FROM orders'
    """

    def value(reference: re.Match[str]) -> str:
        name = reference[1]
        if name not in values:
            raise SqlError.of(
                f"The variable '{name}' is not defined.",
                allowed=", ".join(values) or "none: no variable is defined",
                next_step=f"Define it: -D {name}=VALUE.",
            )
        return values[name]

    return _REFERENCE.sub(value, text)
