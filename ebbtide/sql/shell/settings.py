"""Settings of the client: SET and RESET change them beside the session's."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.errors import SqlError
from ebbtide.sql.shell.formats import ResultFormat

RESULT_FORMAT, TIMING = "result-format", "timing"
_SWITCH = {"on": True, "off": False, "true": True, "false": False}


@dataclass
class ClientSettings:
    """How results are shown.

    Args:
        first_format: What `result-format` is at the beginning, and after RESET.
    """

    first_format: ResultFormat = ResultFormat.TABLE

    def __post_init__(self) -> None:
        self.reset()

    def values(self) -> dict[str, str]:
        """Return all of them."""
        return {RESULT_FORMAT: self.result_format.value, TIMING: "on" if self.timing else "off"}

    def set(self, key: str, value: str) -> None:
        """Change one.

        Raises:
            SqlError: the value is not one of its.
        """
        name = value.lower()
        if key == RESULT_FORMAT and name in list(ResultFormat):
            self.result_format = ResultFormat(name)
        elif key == TIMING and name in _SWITCH:
            self.timing = _SWITCH[name]
        else:
            allowed = list(ResultFormat) if key == RESULT_FORMAT else ["on", "off"]
            raise SqlError.of(
                f"The setting '{key}' has no such value.",
                got=value,
                allowed=", ".join(allowed),
            )

    def reset(self, key: str | None = None) -> None:
        """Put one, or all, back to what it was at the beginning."""
        if key in {RESULT_FORMAT, None}:
            self.result_format = self.first_format
        if key in {TIMING, None}:
            self.timing = False
