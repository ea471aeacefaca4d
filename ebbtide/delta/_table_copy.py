"""A verified copy of a table as of one version: the files that this version names, and its log up to it, byte for byte.

So the copy is the table as it was then: the same versions, identities and checksums. Files that older versions name are not copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from ebbtide.delta._log import Log
from ebbtide.errors import DamagedFileError
from ebbtide.storage import Location

Digest = tuple[int, str]
"""A file's bytes, and their digest; see `Location.digest`."""
_LAST_CHECKPOINT = "_last_checkpoint"
_SIDECARS = "_sidecars"


def copy_version(
    table: str, version: int, locations: Iterable[str], to: str, expected: Mapping[str, Digest] | None
) -> dict[str, Digest]:
    """Copy a table as of a version; one that is killed is done again alike.

    Args:
        table: Its location.
        version: The version.
        locations: Locations of the files that it names.
        to: Location of the copy. It is readable once its last commit is there, which comes last.
        expected: What the files must have, by name. None: what they have.

    Returns:
        Name of each copied file below the table to its bytes and digest.

    Raises:
        FileNotFoundError: a file is gone.
        DamagedFileError: a file has not what is expected, or the copy has not what the file has.
    """
    copied = {}
    paths = []
    # Data files first: a commit that names them must not be there without them.
    for location in dict.fromkeys(locations):
        name = location.removeprefix(f"{table}/")
        copied[name] = _copied(table, name, to, expected)
        paths.append(f"{to}/{name}")
    if Location(to).is_local:
        Location.sync_together(Location(to).with_folders(paths, is_new=True))
    _copy_hint(table, version, to)
    for name in _log_files(table, version):
        copied[name] = _copied(table, name, to, expected)
    return copied


def _copy_hint(table: str, version: int, to: str) -> None:
    """Copy the name of the newest checkpoint, if the copy has it: the one file of a log that changes."""
    hint = (Log(table).folder / _LAST_CHECKPOINT).read_bytes()
    if hint is not None and json.loads(hint).get("version", version + 1) <= version:
        (Log(to).folder / _LAST_CHECKPOINT).replace_bytes(hint)


def _copied(table: str, name: str, to: str, expected: Mapping[str, Digest] | None) -> Digest:
    found = Location(f"{table}/{name}").copy_verified(f"{to}/{name}")
    if expected is not None and expected.get(name) != found:
        raise DamagedFileError.of(
            f"'{table}/{name}' is not the file that was copied there.",
            got=str(found),
            allowed=str(expected.get(name, "no such file")),
            next_step="Use another copy.",
        )
    return found


def _log_files(table: str, version: int) -> Iterator[str]:
    """Yield the names of the log's files up to a version: checkpoints with their parts first, then the commits, the last one last."""
    folder = Log(table).folder
    log = folder.removeprefix(f"{table}/")
    names = [name for name in Log(table).names(version) if not name.endswith(".compacted.json")]
    for name in (folder / _SIDECARS).list_files():
        yield f"{log}/{_SIDECARS}/{name}"
    commits = sorted(name for name in names if name.endswith(Log.COMMIT))
    yield from (f"{log}/{name}" for name in names if name not in commits)
    yield from (f"{log}/{name}" for name in commits)
