"""State time-to-live: the configuration, and the one rule of expiry.

Source: FLIP-25; the behaviour is Flink 2.3's where Flink has one.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ebbtide.columns import Long
from ebbtide.durations import PositiveDuration, parse_duration, to_ms

NEVER_MS = Long.MAX
"""The longest time to live, in ms: the largest long. It is written as the longest timedelta."""
TIMERS = "@timers"
"""The name of a user's timers, which are stored like a map state."""


class _Named(StrEnum):
    """Names in capitals; FLIP-25's spelling (`OnCreateAndWrite`) is also accepted."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        # An underscore goes between a small and a capital letter: OnCreateAndWrite becomes ON_CREATE_AND_WRITE.
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).upper()
        name = _FIRST_VERSION.get(name, name)
        return cls.__members__.get(name)


_FIRST_VERSION = {"ON_WRITE": "ON_CREATE_AND_WRITE", "ON_READ_WRITE": "ON_READ_AND_WRITE"}
"""Names of FLIP-25's first version for two update types: OnWrite and OnReadWrite. Its other names are unchanged."""


class UpdateType(_Named):
    """The accesses that set or renew an entry's time.

    | | created | overwritten | read |
    |---|---|---|---|
    | DISABLED | no time is kept, nothing expires | | |
    | ON_CREATE | set | kept | kept |
    | ON_CREATE_AND_WRITE | set | renewed | kept |
    | ON_READ_AND_WRITE | set | renewed | renewed |
    | ON_READ | set | kept | renewed |
    """

    DISABLED = "DISABLED"
    ON_CREATE = "ON_CREATE"
    ON_CREATE_AND_WRITE = "ON_CREATE_AND_WRITE"
    ON_READ_AND_WRITE = "ON_READ_AND_WRITE"
    ON_READ = "ON_READ"

    @property
    def renews_on_read(self) -> bool:
        """Return whether a read that returns an entry renews it."""
        return self in (UpdateType.ON_READ, UpdateType.ON_READ_AND_WRITE)

    @property
    def renews_on_write(self) -> bool:
        """Return whether an overwrite of a live entry renews it."""
        return self in (UpdateType.ON_CREATE_AND_WRITE, UpdateType.ON_READ_AND_WRITE)


class StateVisibility(_Named):
    """Visibility of expired entries that are still stored."""

    NEVER_RETURN_EXPIRED = "NEVER_RETURN_EXPIRED"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "RETURN_EXPIRED_IF_NOT_CLEANED_UP"


class TimeCharacteristic(_Named):
    """The clock that entries age by."""

    PROCESSING_TIME = "PROCESSING_TIME"
    EVENT_TIME = "EVENT_TIME"


class ExpiryClock(_Named):
    """The clock that an event time is compared with."""

    WATERMARK = "WATERMARK"
    PROCESSING_TIME = "PROCESSING_TIME"


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class IncrementalCleanup(_Config):
    """Looks at some stored keys at each access. Source: FLIP-25, "lazy background cleanup"."""

    cleanup_size: int = Field(
        default=5,
        gt=0,
        description="Keys looked at per access. More keys clean sooner and make each access slower. Default: 5.",
    )
    run_for_every_record: bool = Field(
        default=False, description="Also clean at each change of the current key, without an access. Default: false."
    )


class CompactionFilter(_Config):
    """Drops expired entries when stored files are compacted. Source: FLIP-25, "RocksDB TTL compaction filter"."""

    query_time_after_num_entries: int = Field(
        default=1000,
        gt=0,
        description="Entries between two readings of the clock; fewer are more exact. Stores heap and rocksdb only. Default: 1000.",
    )


class CleanupConfig(_Config):
    """Ways to delete expired entries that no access meets."""

    full_snapshot: bool = Field(
        default=False, description="Leave expired entries out of full snapshots (heap, rocksdb). Default: false."
    )
    incremental: IncrementalCleanup | None = Field(
        default=None, description="Look at some keys at each access. Default: with background, on heap, 5 keys."
    )
    compaction_filter: CompactionFilter | None = Field(
        default=None, description="Drop expired entries in compactions. Default: with background, yes."
    )
    timers: bool = Field(
        default=False,
        description="Delete entries exactly when they expire, by a timer per key and state, as in FLIP-25's first version. In pipelines within a minute, by a continuous run or Dagster's sensor; the check 'expiry' is an error later. Default: false.",
    )
    background: bool = Field(
        default=True,
        description="Allow the store's default cleanup too. False: only the cleanup configured here. Default: true.",
    )

    @property
    def in_compactions(self) -> bool:
        """Return whether compactions drop expired entries."""
        return self.background or self.compaction_filter is not None


class StateTtlConfig(_Config):
    """Time to live of an entry of state.

    Source: FLIP-25, "TTL configuration".

    Example:
        >>> StateTtlConfig(ttl="30d").ttl
        datetime.timedelta(days=30)
        >>> StateTtlConfig(ttl="PT1H", update_type="OnReadAndWrite").update_type
        <UpdateType.ON_READ_AND_WRITE: 'ON_READ_AND_WRITE'>
    """

    ttl: PositiveDuration = Field(description="Time to live of an entry: '30d', 'PT1H'. Required; above 0.")
    update_type: UpdateType = Field(
        default=UpdateType.ON_CREATE_AND_WRITE,
        description="What sets an entry's time: ON_CREATE (its creation only), ON_CREATE_AND_WRITE (each write too), ON_READ_AND_WRITE (each read too), ON_READ (creation and reads), DISABLED (nothing expires). Upsert pipelines take the first two. Default: ON_CREATE_AND_WRITE.",
    )
    state_visibility: StateVisibility = Field(
        default=StateVisibility.NEVER_RETURN_EXPIRED,
        description="NEVER_RETURN_EXPIRED: an entry past its time is never read. RETURN_EXPIRED_IF_NOT_CLEANED_UP: a value or map entry is read once more, unless cleanup was first; stateful pipelines only. Default: NEVER_RETURN_EXPIRED.",
    )
    time_characteristic: TimeCharacteristic = Field(
        default=TimeCharacteristic.PROCESSING_TIME,
        description="PROCESSING_TIME: entries age by the step's clock. EVENT_TIME: they age by the watermark. Default: PROCESSING_TIME.",
    )
    expiry_clock: ExpiryClock = Field(
        default=ExpiryClock.WATERMARK,
        description="With EVENT_TIME, the clock that expires entries: WATERMARK or PROCESSING_TIME. Stateful pipelines only. Default: WATERMARK.",
    )
    cleanup: CleanupConfig = Field(
        default_factory=CleanupConfig,
        description="What deletes expired entries; stateful pipelines only. Default: that of CleanupConfig.",
    )
    expire_live: bool = Field(
        default=False,
        description="Sequence mode only: expire live entries too, not only tombstones. The sink row then replaces the entry. Default: false.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> StateTtlConfig:
        needs_event_time = self.expiry_clock is ExpiryClock.PROCESSING_TIME
        if needs_event_time and not self.by_event_time:
            raise ValueError("expiry_clock: got PROCESSING_TIME; allowed: only with time_characteristic: EVENT_TIME")
        has_cleanup = self.cleanup != CleanupConfig()
        if has_cleanup and not self.enabled:
            raise ValueError("cleanup: got settings; allowed: none with update_type: DISABLED, where nothing expires")
        return self

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        if self.ttl == timedelta.max:
            return NEVER_MS
        return to_ms(self.ttl)

    def expired(self, stamp_ms: NDArray[np.int64], now_ms: int) -> NDArray[np.bool_]:
        """Mark the stamps that have expired: `stamp + ttl <= now`, the sum capped at the largest long.

        Args:
            stamp_ms: (n,) last access, epoch ms.
            now_ms: Reading of the clock that entries expire by, epoch ms.

        Example:
            >>> StateTtlConfig(ttl="10ms").expired(np.array([0, 6]), 10).tolist()
            [True, False]
        """
        return expired(stamp_ms, self.ttl_ms, now_ms)

    @property
    def state_contract(self) -> dict[str, Any]:
        """The settings that give stored stamps their meaning, as plain JSON values."""
        contract = {
            "ttl_ms": self.ttl_ms,
            "update_type": str(self.update_type),
            "state_visibility": str(self.state_visibility),
            "time_characteristic": str(self.time_characteristic),
            "expiry_clock": str(self.expiry_clock),
        }
        if self.expire_live:  # states stored before this setting existed do not have it
            contract["expire_live"] = True
        return contract

    @property
    def by_event_time(self) -> bool:
        """Return whether entries are stamped with the event time of the record that touched them."""
        return self.time_characteristic is TimeCharacteristic.EVENT_TIME

    @property
    def by_clock(self) -> bool:
        """Return whether processing time ends entries."""
        return not self.by_event_time or self.expiry_clock is ExpiryClock.PROCESSING_TIME

    @property
    def enabled(self) -> bool:
        """Return whether anything expires."""
        return self.update_type is not UpdateType.DISABLED


def _or_bare(value: Any) -> Any:
    is_config = isinstance(value, dict | StateTtlConfig)
    if is_config:
        return value
    return {"ttl": parse_duration(value)}


Ttl = Annotated[StateTtlConfig, BeforeValidator(_or_bare, json_schema_input_type=str | StateTtlConfig)]
"""A configuration, or the bare duration."""


def end_ms(stamp_ms: int, ttl_ms: int) -> int:
    """Return the time at which an entry expires, epoch ms, capped at the largest long."""
    return min(stamp_ms + ttl_ms, Long.MAX)


def expired(stamp_ms: NDArray[np.int64], ttl_ms: int, now_ms: int) -> NDArray[np.bool_]:
    """Mark the stamps that have expired; see `StateTtlConfig.expired`.

    Args:
        stamp_ms: (n,) last access, epoch ms.
        ttl_ms: Positive milliseconds.
        now_ms: Clock reading, epoch ms.

    Source: Flink 2.3, `TtlUtils.expired`.
    """
    # The sum could overflow for a stamp above 0, so the time to live is capped at the distance to the largest long.
    from_epoch_ms = np.maximum(stamp_ms, 0)
    longest_ttl_ms = Long.MAX - from_epoch_ms
    capped_ttl_ms = np.minimum(ttl_ms, longest_ttl_ms)
    ends_ms = stamp_ms + capped_ttl_ms
    # Inclusive: an entry whose end is exactly now has expired, as in Flink.
    return np.asarray(ends_ms <= now_ms)
