"""Environment variables: Ebbtide's own, with their allowed values, and those that settings refer to as `${NAME}`.

Such references keep credentials out of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ebbtide.errors import ConfigError
from ebbtide.redaction import REFERENCE, hide


@dataclass(frozen=True)
class Variable:
    """A variable of the environment that Ebbtide reads. Without a value it counts as not set.

    Args:
        name: Its name.
        meaning: For `ebbtide --help`.
        pattern: Regular expression of its allowed values.
        allowed: The same in words.
        default: Its value where it is not set.
    """

    name: str
    meaning: str
    pattern: str
    allowed: str
    default: str = ""

    @property
    def value(self) -> str:
        """Its value.

        Raises:
            ConfigError: that is not allowed.
        """
        given = os.environ.get(self.name) or self.default
        if given and re.fullmatch(self.pattern, given, re.ASCII) is None:
            raise ConfigError.of(
                f"The environment variable {self.name} is not usable.",
                got=repr(given),
                allowed=self.allowed,
                next_step="Set it to that, or unset it.",
            )
        return given


_PLACE = r"[^\x00-\x1f\x7f]+"
"""Pattern of a path or a URI: no control characters. The code that uses the path refuses other faults."""
ROOT = Variable("EBBTIDE_ROOT", "Folder of all tables, in place of --root.", _PLACE, "a path or a URI")
ENGINE = Variable(
    "EBBTIDE_ENGINE", "auto, spark or local, in place of --engine.", "auto|spark|local", "auto, spark, local"
)
LOG_FORMAT = Variable("EBBTIDE_LOG_FORMAT", "text or json, in place of --log-format.", "text|json", "text, json")
DRIVER_MEMORY = Variable(
    "EBBTIDE_DRIVER_MEMORY",
    "Heap of Spark's JVM. Default: 4g.",
    r"[1-9]\d{0,14}[kKmMgGtT][bB]?",
    "a number and its unit, such as 512m or 4g",
)
MASTER = Variable(
    "EBBTIDE_MASTER",
    "Spark's master. Default: local[*].",
    r"yarn|local(-cluster)?(\[[\d*,]+\])?|[a-z][a-z0-9+.-]*://\S+",
    "local, local[N], local[*], yarn, or a URL such as spark://host:7077",
)
LOG_LEVEL = Variable(
    "EBBTIDE_LOG_LEVEL",
    "Level of Spark's log. Default: FATAL.",
    "DEBUG|INFO|WARN|ERROR|FATAL",
    "DEBUG, INFO, WARN, ERROR, FATAL",
    "FATAL",
)
FSYNC = Variable("EBBTIDE_FSYNC", "off: roots that may be lost in a power cut. Default: on.", "on|off", "on, off", "on")
CACHE = Variable(
    "EBBTIDE_CACHE", "Folder of local copies of keys. Default: the system's temporary one.", _PLACE, "a path"
)
CACHE_BYTES = Variable(
    "EBBTIDE_CACHE_BYTES",
    "Maximum size of the local copies of keys, in bytes. Default: 10 GB.",
    r"\d{1,18}",
    "a whole number of bytes, such as 10737418240",
    str(10 * 2**30),
)
THREADS = Variable(
    "EBBTIDE_THREADS",
    "Threads of a run without Spark. Default: one a core, up to 8.",
    r"[1-9]\d?",
    "a number from 1 to 99",
)
VARIABLES = (ROOT, ENGINE, LOG_FORMAT, DRIVER_MEMORY, MASTER, LOG_LEVEL, FSYNC, CACHE, CACHE_BYTES, THREADS)
"""All of them, as `ebbtide --help` lists them."""


def refuse_unusable_variables() -> None:
    """Refuse a variable of Ebbtide's whose value is not allowed, before anything is done by it.

    Raises:
        ConfigError: there is one.
    """
    for each in VARIABLES:
        each.value  # noqa: B018 - it judges the value


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
    given = _value_of(reference[1], setting, value)
    hide(given)
    return given


def with_variables(setting: str, text: str) -> str:
    """Replace each `${NAME}` by the variable's value in a text that is not secret.

    Args:
        setting: The setting, in words that begin a sentence.
        text: Its value.

    Raises:
        ConfigError: a variable is not set.
    """

    def value_of(reference: re.Match[str]) -> str:
        return _value_of(reference[1], setting, text)

    return re.sub(r"\$\{([A-Za-z_]\w*)\}", value_of, text, flags=re.ASCII)


def _value_of(name: str, setting: str, text: str) -> str:
    """Return the value of a variable that a setting's text names; refuse one that is not set."""
    if name not in os.environ:
        raise ConfigError.of(
            f"{setting} names a variable that is not set.",
            got=text,
            next_step=f"Set {name} in the environment of this process.",
        )
    return os.environ[name]


def variable(name: str, default: str = "") -> str:
    """Return the value of an environment variable."""
    return os.environ.get(name) or default


def is_any_set(variables: Iterable[str]) -> bool:
    """Return whether any of these environment variables has a value."""
    return any(map(variable, variables))
