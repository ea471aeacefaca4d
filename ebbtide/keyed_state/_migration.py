"""Migration of stored entries when a state's TTL is switched on, off, or changed.

| from | to | entries |
|---|---|---|
| none | TTL | stamped with the time of the migration |
| TTL | none | stamps and per-entry TTLs are removed; expired entries that are still stored become visible again |
| TTL | another | unchanged: stamps are absolute, and the new configuration is applied to them |

Source: FLIP-25, "Migration Plan"; Flink 2.3's behaviour on restore.
"""

from __future__ import annotations

from ebbtide.keyed_state._raw import Entry
from ebbtide.keyed_state._ttl import StateTtlConfig


def has_ttl(config: StateTtlConfig | None) -> bool:
    """Return whether entries are stamped."""
    return config is not None and config.enabled


def migrated(entry: Entry, to: StateTtlConfig | None, now_ms: int) -> Entry:
    """Convert an entry for its state's new configuration.

    Args:
        entry: As it was stored.
        to: The new configuration.
        now_ms: Time of the migration, epoch ms.

    Example:
        >>> from ebbtide.keyed_state._raw import Entry
        >>> migrated(Entry("x"), StateTtlConfig(ttl="1d"), 500).stamp_ms
        500
    """
    if not has_ttl(to):
        return Entry(entry.value)
    # Stamps are absolute: the new time to live counts from the last access.
    if entry.stamp_ms is not None:
        return entry
    return entry._replace(stamp_ms=now_ms)
