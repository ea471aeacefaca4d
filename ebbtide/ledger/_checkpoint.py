"""The checkpoint of a pipeline: its id, and the offsets of each batch.

Its files have the form of a checkpoint of Spark's, which wrote them in older releases.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ebbtide.delta import Writer
from ebbtide.errors import CheckpointMismatchError
from ebbtide.lines import lines_of
from ebbtide.model import StoredDocument
from ebbtide.sources import Span
from ebbtide.storage import Location, sync

SPARK_VERSION = "v1"
"""First line of `offsets/N`."""
KINDS = ("offsets", "commits")
"""Folders of a checkpoint; both have a file for each batch."""
START = "ebbtide_start.json"
"""A file next to those of the batches, so that it is deleted and copied with them."""
ASKED = "asked"
"""Key in it: the begin that the spec named."""
LOST = "lost"
"""Key in it: the records of the source that were lost before the first step, if a user accepted their loss."""
BATCHES_KEPT = 100
"""Batches whose files are kept, at least."""
FORGOTTEN_EVERY = 20
"""Batches from one deletion of older files to the next."""


@dataclass(frozen=True)
class BatchOffsets:
    """One file of `offsets/`.

    Args:
        hash: SHA-256 of the file.
        timestamp_ms: `batchTimestampMs`: the time at which the batch was planned; the same on replay.
        source: The source's offset.
    """

    hash: str
    timestamp_ms: int
    source: dict[str, Any]


@dataclass(frozen=True)
class NotedStart:
    """The begin of the source's first batch, noted before that batch was decided.

    Args:
        position: Position of the first batch; its start counts.
        asked: The begin that the spec named, as JSON; None if an older release noted the start.
        lost: The records before it that are lost, if a user accepted their loss; else None.
    """

    position: dict[str, Any]
    asked: Any = None
    lost: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder."""

    path: str

    @property
    def folders(self) -> tuple[str, ...]:
        """Its folders: itself, and those with a file for each batch."""
        return (self.path, *(Location(self.path) / kind for kind in KINDS))

    @property
    def query_id(self) -> str | None:
        """The id that was made with the checkpoint; None without a checkpoint."""
        raw = (Location(self.path) / "metadata").read_bytes()
        if raw is None:
            return None
        try:
            metadata = json.loads(raw)
            return str(metadata["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged("metadata", error) from error

    @property
    def id_to_discard(self) -> str | None:
        """The id of a checkpoint that is discarded; None also if it cannot be read."""
        try:
            return self.query_id
        except CheckpointMismatchError:
            return None

    @property
    def start(self) -> NotedStart | None:
        """The noted begin of the source's first batch; None if it was not noted."""
        location = Location(self.path) / START
        raw = location.read_bytes()
        if raw is None:
            return None
        try:
            noted = dict(json.loads(raw))
        except (ValueError, TypeError) as error:
            raise self._damaged(START, error) from error
        asked = noted.pop(ASKED, None)
        lost = noted.pop(LOST, None)
        try:
            span = Span.from_json(noted, location)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged(START, error) from error
        return NotedStart(span.to_json(), asked, lost)

    def note_start(self, position: Mapping[str, Any], asked: Any, lost: str | None = None) -> None:
        """Note the begin of the source's first batch: until that is decided, no step's facts have it.

        Args:
            position: The position.
            asked: The begin that the spec names, as JSON.
            lost: See `NotedStart`.
        """
        noted = {**position, ASKED: asked}
        if lost is not None:
            noted[LOST] = lost
        text = json.dumps(noted)
        location = Location(self.path) / START
        location.replace_bytes(text.encode())

    def last_committed(self) -> int | None:
        """Return the last batch that is finished."""
        return max(self._batches("commits"), default=None)

    @property
    def is_open(self) -> bool:
        """True if a planned batch is not committed."""
        return self.last_planned() != self.last_committed()

    def forget_undecided(self, decided: int | None) -> None:
        """Delete the plans of batches that are neither decided nor committed: they are planned again from the current files.

        Args:
            decided: The last batch that the state has decided; None before the first.
        """
        self._forget_torn(decided)
        committed = self.last_committed()
        known = [batch for batch in (decided, committed) if batch is not None]
        last = max(known, default=-1)
        # A batch is planned from a listing of the source. After a crash before the decision the plan may name deleted files.
        for batch in self._batches("offsets"):
            if batch > last:
                self._forget("offsets", batch)

    def _forget_torn(self, decided: int | None) -> None:
        """Delete files of an older release that a power cut left empty or torn, if they can be written again."""
        # An id without decided batches, and the newest commits: their batches are made again, and the state skips them.
        if decided is None and self.id_to_discard is None:
            (Location(self.path) / "metadata").delete()
        for batch in reversed(self._batches("commits")):
            raw = (Location(self.path) / "commits" / str(batch)).read_bytes() or b""
            if _is_whole(raw):
                return
            self._forget("commits", batch)

    def offsets(self, batch_id: int) -> BatchOffsets:
        """Read the offsets of a batch.

        Raises:
            CheckpointMismatchError: the checkpoint has no such batch.
        """
        raw = (Location(self.path) / "offsets" / str(batch_id)).read_bytes()
        if raw is None:
            raise CheckpointMismatchError.of(
                f"The checkpoint '{self.path}' has no offsets for batch {batch_id}.",
                next_step="Restore it, or run 'ebbtide refresh'.",
            )
        # One line each for the format's version, the batch's metadata and the offset of each source. There is one source.
        try:
            version, metadata_line, source_line, *_ = lines_of(raw.decode())
            if version != SPARK_VERSION:
                location = Location(self.path) / "offsets" / str(batch_id)
                raise StoredDocument("A planned batch", location).newer(f"version {version}")
            metadata = json.loads(metadata_line)
            return BatchOffsets(
                hash=hashlib.sha256(raw).hexdigest(),
                timestamp_ms=int(metadata["batchTimestampMs"]),
                source=json.loads(source_line),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"offsets/{batch_id}", error) from error

    def begin(self, puts: Writer) -> None:
        """Write an id if there is none.

        Args:
            puts: Writes its files.
        """
        if self.query_id is None:
            metadata = {"id": str(uuid.uuid4())}
            text = json.dumps(metadata)
            location = Location(self.path) / "metadata"
            # Put if absent: if two processes begin the checkpoint, both use one id.
            puts.put_if_absent(location, text.encode())

    def plan(
        self,
        puts: Writer,
        batch_id: int,
        timestamp_ms: int,
        source: str,
    ) -> bool:
        """Write the offsets of a batch before it is decided; return False if another process has written them.

        Args:
            puts: Writes its files.
            batch_id: The batch.
            timestamp_ms: The time, epoch ms.
            source: The source's offset, JSON of one line.
        """
        metadata = {
            "batchWatermarkMs": 0,
            "batchTimestampMs": timestamp_ms,
            "conf": {},
        }
        metadata_line = json.dumps(metadata)
        text = f"v1\n{metadata_line}\n{source}"
        location = Location(self.path) / "offsets" / str(batch_id)
        return puts.put_if_absent(location, text.encode())

    def commit(self, puts: Writer, batch_id: int) -> None:
        """Write that a batch is finished, and delete the files of old ones."""
        location = Location(self.path) / "commits" / str(batch_id)
        puts.put_if_absent(location, b'v1\n{"nextBatchWatermarkMs":0}')
        # Not after each batch: to find the old ones takes two listings.
        if batch_id % FORGOTTEN_EVERY:
            return
        for kind in KINDS:
            for old in self._batches(kind):
                if old <= batch_id - BATCHES_KEPT:
                    old_file = Location(self.path) / kind / str(old)
                    old_file.delete()

    def last_planned(self) -> int | None:
        """Return the last batch whose offsets are written."""
        return max(self._batches("offsets"), default=None)

    def _damaged(self, name: str, error: Exception) -> CheckpointMismatchError:
        return CheckpointMismatchError.of(
            f"The file '{Location(self.path) / name}' of the checkpoint is torn or damaged.",
            got=repr(error),
            next_step=f"Restore it; or move the folder '{self.path}' away and run again, which says how a new one is begun where the state stands; or run 'ebbtide refresh'.",
        )

    def _batches(self, log: str) -> list[int]:
        names = (Location(self.path) / log).list_files()
        return sorted(int(name) for name in names if name.isdigit())

    def _forget(self, log: str, batch: int) -> None:
        (Location(self.path) / log / str(batch)).delete()
        (Location(self.path) / log / f".{batch}.crc").delete()

    def discard(self) -> None:
        """Delete the checkpoint, its id last."""
        # After a crash on the way the id still says that this is the checkpoint to discard.
        for name in ("offsets", "commits", START):
            (Location(self.path) / name).delete()
        if Location(self.path).is_local and Location(self.path).exists():
            sync(self.path)
        Location(self.path).delete()


def _is_whole(commit: bytes) -> bool:
    """Return whether a file of `commits/` has a version, and valid JSON after it."""
    version, _, text = commit.partition(b"\n")
    try:
        json.loads(text)
    except ValueError:
        return False
    return version.startswith(b"v")
