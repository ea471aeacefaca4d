"""Puts commits of earlier processes on disk; and notes throw-away roots, where nothing is: `EBBTIDE_FSYNC=off`.

`ROOT/NAME/unsynced` holds the boot in which tables were written so; it is on disk before them. A run in another boot is refused: the state
of the tables is unknown. A run of the same boot that does sync writes all to disk first, and deletes it.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path

from ebbtide.delta import Log
from ebbtide.environment import FSYNC
from ebbtide.errors import ConfigError, DamagedFileError
from ebbtide.model import Decision
from ebbtide.processes import boot
from ebbtide.storage import Location

MARK = "unsynced"
_log = logging.getLogger(__name__)


def settle(home: str, *, is_fresh: bool = False) -> None:
    """Put the commits of earlier processes on disk, before steps rely on them; or note that nothing is synced. Call it under the lease.

    Args:
        home: Folder of a pipeline's tables.
        is_fresh: All tables are made again.

    Raises:
        DamagedFileError: tables were written without syncs, in another boot.
        ConfigError: this system does not identify its boots, and syncing is off.
    """
    if FSYNC.value == "off":
        _warn(home)
    if Location(home).is_local:
        _settle_mark(home, is_fresh=is_fresh)
        # A process that was killed may not have synced the names of its last commits, nor those of tables that it made.
        logs = [Log(Location(home) / name).folder for name in ("state", *Decision.OWN_OUTPUTS)]
        Location.sync_together(folder for folder in (Location(home), *logs) if folder.is_folder())


def _settle_mark(home: str, *, is_fresh: bool) -> None:
    mark = Path(home, MARK)
    noted = Location(mark).read_bytes()
    now = boot()
    if noted is not None and noted.decode() != now and not is_fresh:
        raise DamagedFileError.of(
            f"The tables at '{home}' were written with {FSYNC.name}=off, and this machine has started again since: files may be lost or torn.",
            allowed="the boot in which they were written",
            next_step=f"Delete the folder, or run 'ebbtide refresh'. Only if the machine was shut down in order, delete '{mark}' and run again.",
        )
    if FSYNC.value == "on":
        if noted is not None:
            os.sync()  # the only call that covers files deleted in any folder
            Location(mark).delete()
        return
    if not now:
        raise ConfigError.of(
            f"{FSYNC.name}=off needs a system that names its boots.",
            got="no /proc/sys/kernel/random/boot_id",
            next_step=f"Unset {FSYNC.name}.",
        )
    if noted is None or noted.decode() != now:
        mark.write_text(now, encoding="ascii")
        for path in (mark, *mark.parents[:2]):
            Location(path).sync(always=True)


@cache
def _warn(home: str) -> None:
    """Warn once of each folder."""
    if Location(home).is_local:
        _log.warning(
            "%s=off: a power cut or a crash of this machine may lose or damage the tables at '%s'.", FSYNC.name, home
        )
    else:
        _log.warning("%s=off has no effect on '%s': a store keeps what it has accepted.", FSYNC.name, home)
