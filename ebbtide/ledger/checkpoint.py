"""Spark's checkpoint, as far as Ebbtide reads it: its id, and what each batch was made of. Of a materialized view Ebbtide writes it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ebbtide.delta.commit import Puts
from ebbtide.errors import CheckpointMismatchError
from ebbtide.model import stored
from ebbtide.sources.span import Span
from ebbtide.storage.disk import sync, sync_below
from ebbtide.storage.paths import delete, exists, is_file, is_local, join, list_files, read_bytes, replace_bytes

SPARK_VERSION = "v1"
"""First line of Spark's `offsets/N`."""
START = "ebbtide_start.json"
"""Ours, beside Spark's files, so that it goes with them."""
ASKED = "asked"
"""Key in it: where the spec said to begin."""
LOST = "lost"
"""Key in it: which records of the source were lost before the first step, where a user accepted that."""
BATCHES_KEPT = 100
"""Batches of which a checkpoint that no stream of Spark's writes keeps the files; Spark's own keeps as many (`minBatchesToRetain`)."""


@dataclass(frozen=True)
class BatchOffsets:
    """One file of `offsets/`.

    Args:
        hash: SHA-256 of the file.
        timestamp_ms: `batchTimestampMs`: when the batch was planned; the same on replay.
        source: The source's offset.
        conf: Settings of Spark's that it was planned with.
    """

    hash: str
    timestamp_ms: int
    source: dict[str, Any]
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NotedStart:
    """Where the source's first batch begins, as it was noted before that was decided.

    Args:
        position: It; of what was to be read then, the beginning counts.
        asked: Where the spec said to begin, as JSON has it; None: an older Ebbtide did not note it.
        lost: Which records before it are lost, where a user accepted that; None if none are.
    """

    position: dict[str, Any]
    asked: Any = None
    lost: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder."""

    path: str

    @property
    def query_id(self) -> str | None:
        """The id that Spark minted with the checkpoint; None if there is none."""
        raw = read_bytes(join(self.path, "metadata"))
        if raw is None:
            return None
        try:
            metadata = json.loads(raw)
            return str(metadata["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged("metadata", error) from error

    @property
    def id_to_discard(self) -> str | None:
        """The same; None too where it cannot be read, of a checkpoint that is discarded."""
        try:
            return self.query_id
        except CheckpointMismatchError:
            return None

    @property
    def start(self) -> NotedStart | None:
        """Where the source's first batch begins, as it was noted; None if it was not."""
        location = join(self.path, START)
        raw = read_bytes(location)
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
        """Note where the source's first batch begins: until it is decided, no step's facts hold it.

        Args:
            position: The place.
            asked: Where the spec says to begin, as JSON has it.
            lost: See `NotedStart`.
        """
        noted = {**position, ASKED: asked}
        if lost is not None:
            noted[LOST] = lost
        replace_bytes(join(self.path, START), json.dumps(noted).encode())

    def last_committed(self) -> int | None:
        """Return the last batch that Spark committed."""
        return max(self._batches("commits"), default=None)

    @property
    def is_open(self) -> bool:
        """Whether a batch was planned that Spark has not committed."""
        return self.last_planned() != self.last_committed()

    def settle(self, batch_id: int) -> None:
        """Wait until what Spark has noted of a batch is on disk, as the step that is made of it names it.

        Args:
            batch_id: The batch.
        """
        if not is_local(self.path):
            return
        names = [f"offsets/{batch_id}", f"offsets/.{batch_id}.crc"]
        if batch_id == 0:
            names += ["metadata", ".metadata.crc"]
        files = [join(self.path, name) for name in names]
        sync_below(self.path, filter(is_file, files))

    def forget_undecided(self, decided: int | None) -> None:
        """Delete the plans of batches of which nothing was committed, so that they are made again from the files as they are.

        Args:
            decided: The last batch that the state has decided; None before the first.
        """
        self._forget_torn(decided)
        committed = self.last_committed()
        known = [batch for batch in (decided, committed) if batch is not None]
        last = max(known, default=-1)
        for batch in self._batches("offsets"):
            if batch > last:
                self._forget("offsets", batch)

    def _forget_torn(self, decided: int | None) -> None:
        """Delete what a power cut has left empty or torn, and nothing needs: Spark makes it again.

        That are the newest commits, whose batch is found decided then, and an id by which no batch was decided.
        """
        if decided is None and self.id_to_discard is None:
            delete(join(self.path, "metadata"))
        for batch in reversed(self._batches("commits")):
            raw = read_bytes(join(self.path, "commits", str(batch))) or b""
            if _is_whole(raw):
                return
            self._forget("commits", batch)

    def offsets(self, batch_id: int) -> BatchOffsets:
        """Read what a batch was made of.

        Raises:
            CheckpointMismatchError: the checkpoint has no such batch.
        """
        raw = read_bytes(join(self.path, "offsets", str(batch_id)))
        if raw is None:
            raise CheckpointMismatchError.of(
                f"The checkpoint '{self.path}' has no offsets for batch {batch_id}.",
                next_step="Restore it, or run 'ebbtide refresh'.",
            )
        # Spark writes a line each for the format's version, the batch's metadata and the offset of each source: we have one.
        try:
            version, metadata_line, source_line, *_ = raw.decode().splitlines()
            if version != SPARK_VERSION:
                raise stored.newer(
                    "A planned batch", join(self.path, "offsets", str(batch_id)), got=f"version {version}"
                )
            metadata = json.loads(metadata_line)
            return BatchOffsets(
                hash=hashlib.sha256(raw).hexdigest(),
                timestamp_ms=int(metadata["batchTimestampMs"]),
                source=json.loads(source_line),
                conf=dict(metadata.get("conf") or {}),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"offsets/{batch_id}", error) from error

    def begin(self, puts: Puts) -> None:
        """Mint an id, if there is none: of a checkpoint that no stream of Spark's writes.

        Args:
            puts: Puts its files.
        """
        if self.query_id is None:
            text = json.dumps({"id": str(uuid.uuid4())})
            puts.put_if_absent(join(self.path, "metadata"), text.encode())

    def plan(
        self,
        puts: Puts,
        batch_id: int,
        timestamp_ms: int,
        source: str,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """Note what a batch is to be made of, in Spark's form.

        Args:
            puts: Puts its files.
            batch_id: The batch.
            timestamp_ms: The time, epoch ms.
            source: The source's offset, JSON of one line.
            conf: Settings of Spark's, for one that goes on with the checkpoint. Default: none.
        """
        metadata = {
            "batchWatermarkMs": 0,
            "batchTimestampMs": timestamp_ms,
            "conf": dict(conf or {}),
        }
        metadata_line = json.dumps(metadata)
        text = f"v1\n{metadata_line}\n{source}"
        location = join(self.path, "offsets", str(batch_id))
        puts.put_if_absent(location, text.encode())

    def commit(self, puts: Puts, batch_id: int) -> None:
        """Note that a batch is finished, and forget old ones, as Spark does."""
        puts.put_if_absent(join(self.path, "commits", str(batch_id)), b'v1\n{"nextBatchWatermarkMs":0}')
        for kind in ("offsets", "commits"):
            for old in self._batches(kind):
                if old <= batch_id - BATCHES_KEPT:
                    delete(join(self.path, kind, str(old)))

    def last_planned(self) -> int | None:
        """Return the last batch of which it is known what it is made of."""
        return max(self._batches("offsets"), default=None)

    def _damaged(self, name: str, error: Exception) -> CheckpointMismatchError:
        return CheckpointMismatchError.of(
            f"The file '{join(self.path, name)}' of Spark's checkpoint is torn or damaged.",
            got=repr(error),
            next_step=f"Restore it; or move the folder '{self.path}' away and run again, which says how a new one is begun where the state stands; or run 'ebbtide refresh'.",
        )

    def _batches(self, log: str) -> list[int]:
        names = list_files(join(self.path, log))
        return sorted(int(name) for name in names if name.isdigit())

    def _forget(self, log: str, batch: int) -> None:
        delete(join(self.path, log, str(batch)))
        delete(join(self.path, log, f".{batch}.crc"))

    def discard(self) -> None:
        """Delete the checkpoint, its id last: until then it is known to be one that is to go."""
        for name in ("offsets", "commits", START):
            delete(join(self.path, name))
        if is_local(self.path) and exists(self.path):
            sync(self.path)
        delete(self.path)


def _is_whole(commit: bytes) -> bool:
    """Return whether a file of `commits/` has its version, and JSON after it."""
    version, _, text = commit.partition(b"\n")
    try:
        json.loads(text)
    except ValueError:
        return False
    return version.startswith(b"v")
