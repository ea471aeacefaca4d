"""Spark's checkpoint, as far as Ebbtide reads it: its id, and what each batch was made of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ebbtide.errors import CheckpointMismatchError
from ebbtide.paths import delete, exists, join, list_files, read_bytes


@dataclass(frozen=True)
class BatchOffsets:
    """One file of `offsets/`.

    Args:
        hash: SHA-256 of the file.
        timestamp_ms: `batchTimestampMs`: when the batch was planned; the same on replay.
        source: The source's offset.
    """

    hash: str
    timestamp_ms: int
    source: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder."""

    path: str

    @property
    def query_id(self) -> str | None:
        """The id that Spark minted with the checkpoint; None if there is none."""
        raw = read_bytes(join(self.path, "metadata"))
        return None if raw is None else str(json.loads(raw)["id"])

    def last_committed(self) -> int | None:
        """Return the last batch that Spark committed."""
        return max(self._batches("commits"), default=None)

    @property
    def is_open(self) -> bool:
        """Whether a batch was planned that Spark has not committed."""
        return max(self._batches("offsets"), default=None) != self.last_committed()

    def forget_undecided(self, decided: int | None) -> None:
        """Delete the plans of batches of which nothing was committed, so that they are made again from the files as they are.

        Args:
            decided: The last batch that the state has decided; None before the first.
        """
        committed = self.last_committed()
        last = max(-1 if decided is None else decided, -1 if committed is None else committed)
        for batch in self._batches("offsets"):
            if batch > last:
                delete(join(self.path, "offsets", str(batch)))
                delete(join(self.path, "offsets", f".{batch}.crc"))

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
        _, metadata, source, *_ = raw.decode().splitlines()
        return BatchOffsets(
            hashlib.sha256(raw).hexdigest(), int(json.loads(metadata)["batchTimestampMs"]), json.loads(source)
        )

    def _batches(self, log: str) -> list[int]:
        folder = join(self.path, log)
        return [int(name) for name in list_files(folder) if name.isdigit()] if exists(folder) else []

    def discard(self) -> None:
        """Delete the checkpoint."""
        delete(self.path)
