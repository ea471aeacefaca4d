"""The files of a table that no reader needs any more: what VACUUM deletes.

Source: Delta's VACUUM. A file stays while the newest version names it, for the retention after a commit has removed it, and for the
retention after it was written: a writer names its files only when it commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ebbtide.delta._commit import named_files
from ebbtide.delta._log import Action, Log, checkpoint_actions
from ebbtide.delta._properties import INTERVAL, PART, UNIT_MS
from ebbtide.errors import ConfigError

RETENTION = "delta.deletedFileRetentionDuration"
DEFAULT_RETENTION = "interval 1 week"


def retention_ms(configuration: Mapping[str, str], table: str) -> int:
    """Return for how long a table keeps files that a commit has removed, milliseconds.

    Args:
        configuration: The table's properties.
        table: Its location.

    Raises:
        ConfigError: the property is not an interval of fixed length.

    Example:
        >>> retention_ms({"delta.deletedFileRetentionDuration": "interval 1 day 12 hours"}, "/t")
        129600000
    """
    text = configuration.get(RETENTION, DEFAULT_RETENTION)
    if not INTERVAL.fullmatch(text):
        raise ConfigError.of(
            f"The retention of the Delta table '{table}' cannot be read.",
            got=f"{RETENTION}: {text}",
            allowed=f"an interval such as '{DEFAULT_RETENTION}', in {', '.join(UNIT_MS)}s",
            next_step="Set the property by ALTER TABLE ... SET TBLPROPERTIES.",
        )
    return sum(int(number) * UNIT_MS[unit.lower()] for number, unit in PART.findall(text))


def removed_since(table: str, checkpoint: Sequence[str], commits: Sequence[int], before_ms: int) -> list[str]:
    """Return the locations of files that were removed within the retention, with their vectors.

    Args:
        table: Location of the table.
        checkpoint: Files of the newest checkpoint, which names those that were removed within the retention before it.
        commits: Versions of the commits since.
        before_ms: The start of the retention, epoch ms.
    """
    actions: list[Action] = []
    for part in checkpoint:
        actions += checkpoint_actions(table, part)
    for commit in Log(table).each(commits, Log(table).commit):
        actions += commit
    removed = [action["remove"] for action in actions if "remove" in action]
    kept = [remove for remove in removed if remove.get("deletionTimestamp", 0) >= before_ms]
    return named_files(table, [{"add": remove} for remove in kept])
