"""Variables of the environment: those that settings name, `${NAME}`, so that no file holds a credential, and those that switch something on."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ebbtide.errors import ConfigError
from ebbtide.redaction import REFERENCE, hide


def from_environment(setting: str, value: str) -> str:
    """Follow a reference to a variable; its value is shown nowhere from now on.

    Args:
        setting: The setting, in words that begin a sentence.
        value: `${NAME}`, or a value, which stays.

    Raises:
        ConfigError: the variable is not set.
    """
    reference = REFERENCE.fullmatch(value)
    if reference is None:
        return value
    variable = reference[1]
    if variable not in os.environ:
        raise ConfigError.of(
            f"{setting} names a variable that is not set.",
            got=value,
            next_step=f"Set {variable} in the environment of this process.",
        )
    given = os.environ[variable]
    hide(given)
    return given


def variable(name: str, default: str = "") -> str:
    """Return the value of a variable of the environment."""
    return os.environ.get(name) or default


def is_any_set(variables: Iterable[str]) -> bool:
    """Return whether a variable of the environment has a value, of some."""
    return any(map(variable, variables))
