"""State time-to-live: the configuration, the durations, and the one rule of expiry.

Source: FLIP-25; the behaviour is Flink 2.3's where Flink has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

LONG_MAX = 2**63 - 1
NEVER_MS = LONG_MAX
"""A time to live that never ends."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_duration(value: Any) -> Any:
    """Read `7d`, `90s`, `1h30m` as a timedelta; leave all else (ISO 8601, timedelta) to pydantic.

    Example:
        >>> parse_duration("1h30m")
        datetime.timedelta(seconds=5400)

    Raises:
        ValueError: a bare number, whose unit nobody can know, or an unknown unit.
    """
    if isinstance(value, timedelta) or (isinstance(value, str) and value.strip().upper().startswith(("P", "-P"))):
        return value
    text = str(value).strip().lower()
    if isinstance(value, str) and re.fullmatch(r"([0-9]{1,18}\s*(ms|s|m|h|d|w)\s*)+", text):
        ms = sum(int(n) * _UNITS_MS[u] for n, u in re.findall(r"([0-9]+)\s*(ms|s|m|h|d|w)", text))
        if ms <= to_ms(timedelta.max):
            return timedelta(milliseconds=ms)
        raise ValueError(f"got {value!r}; allowed: up to {timedelta.max.days}d")
    raise ValueError(
        f"got {value!r}; allowed: a number with its unit (ms, s, m, h, d, w) such as '7d', ISO 8601 such as 'P7D', or a timedelta"
    )


def format_duration(value: timedelta) -> str:
    """Write a timedelta as the largest unit that divides it.

    Example:
        >>> format_duration(timedelta(days=30)), format_duration(timedelta(milliseconds=1500))
        ('30d', '1500ms')
    """
    ms = to_ms(value)
    for unit in ("d", "h", "m", "s"):
        if ms % _UNITS_MS[unit] == 0:
            return f"{ms // _UNITS_MS[unit]}{unit}"
    return f"{ms}ms"


def to_ms(value: timedelta) -> int:
    """Return whole milliseconds."""
    return value // timedelta(milliseconds=1)


def _from(least: timedelta) -> Callable[[timedelta], timedelta]:
    def check(value: timedelta) -> timedelta:
        if value < least:
            raise ValueError(f"got {value}; allowed: greater than or equal to {to_ms(least)}ms")
        return value

    return check


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration, json_schema_input_type=str),
    PlainSerializer(format_duration, when_used="json"),
]
NaturalDuration = Annotated[Duration, AfterValidator(_from(timedelta(0)))]
PositiveDuration = Annotated[Duration, AfterValidator(_from(timedelta(milliseconds=1)))]


class UpdateType(StrEnum):
    """Which writes renew an entry's time."""

    ON_CREATE = "ON_CREATE"
    ON_CREATE_AND_WRITE = "ON_CREATE_AND_WRITE"


class StateVisibility(StrEnum):
    """Whether an entry past its time may still be read. FLIP-25's other choice comes with the TTL state store."""

    NEVER_RETURN_EXPIRED = "NEVER_RETURN_EXPIRED"


class TimeCharacteristic(StrEnum):
    """The clock that entries age by."""

    PROCESSING_TIME = "PROCESSING_TIME"
    EVENT_TIME = "EVENT_TIME"


class StateTtlConfig(BaseModel):
    """How long an entry of state lives.

    Source: FLIP-25, "TTL configuration".

    Example:
        >>> StateTtlConfig(ttl="30d").ttl
        datetime.timedelta(days=30)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ttl: PositiveDuration = Field(description="Time to live of an entry: '30d', 'PT1H'. Required; above 0.")
    update_type: UpdateType = Field(
        default=UpdateType.ON_CREATE_AND_WRITE,
        description="What sets an entry's time: ON_CREATE (its creation only) or ON_CREATE_AND_WRITE (each write too). Default: ON_CREATE_AND_WRITE.",
    )
    state_visibility: StateVisibility = Field(
        default=StateVisibility.NEVER_RETURN_EXPIRED,
        description="NEVER_RETURN_EXPIRED: an entry past its time is never read. Default and only choice.",
    )
    time_characteristic: TimeCharacteristic = Field(
        default=TimeCharacteristic.PROCESSING_TIME,
        description="PROCESSING_TIME: entries age by the step's clock. EVENT_TIME: they age by the watermark. Default: PROCESSING_TIME.",
    )
    expire_live: bool = Field(
        default=False,
        description="Sequence mode only: expire live entries too, not only tombstones; the sink row then stands in for them. Default: false.",
    )

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return to_ms(self.ttl)


def expired(stamp_ms: NDArray[np.int64], ttl_ms: int, now_ms: int) -> NDArray[np.bool_]:
    """Tell which stamps have expired: `stamp + ttl <= now`, the sum capped at the largest long.

    Args:
        stamp_ms: (n,) last access, epoch ms.
        ttl_ms: Positive milliseconds; `NEVER_MS` never expires.
        now_ms: Clock reading, epoch ms.

    Example:
        >>> expired(np.array([0, 6]), 10, 10).tolist()
        [True, False]

    Source: Flink 2.3, `TtlUtils.expired`.
    """
    if ttl_ms == NEVER_MS:
        return np.zeros(len(stamp_ms), dtype=bool)
    capped = np.where(
        stamp_ms > LONG_MAX - ttl_ms, LONG_MAX, stamp_ms + np.minimum(ttl_ms, LONG_MAX - np.maximum(stamp_ms, 0))
    )
    return np.asarray(capped <= now_ms)
