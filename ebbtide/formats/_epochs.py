"""Epochs of a source's log: a log that restarts at lower positions is ordered above the old one.

A position is a number within one log. After a failover, a switch to a copy or a restore, the database writes another log, whose
positions may be lower although its changes are newer. `Frontier.log_begins` has the event times at which the log restarted:
later changes belong to the next epoch. The first number of a position holds the epoch above its
lowest 56 bits, so that sequences compare by epoch first. Epoch 0 leaves stored sequences unchanged.

The epoch depends only on the record's position and event time, so the table does not depend on arrival, batches or redelivery.
A snapshot row without a position stays below all changes of every epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ebbtide.columns import Long
from ebbtide.errors import ConfigError
from ebbtide.formats._places import with_sequences
from ebbtide.formats._settings import EPOCH_BITS

MOST_EPOCHS = 100
"""Maximum number of restarts of a log: the sign bit is not used."""


def in_epochs(staged: pa.Table, log_begins: Sequence[int]) -> pa.Table:
    """Return staged rows with the epochs of their changes in their sequences.

    Args:
        staged: Staged rows, with the source's event times.
        log_begins: Event times at which the source's log restarted, epoch ms, ascending.

    Raises:
        ConfigError: A position is so large that no epoch fits above it.
    """
    if not log_begins:
        return staged
    times = staged["_event_ms"].combine_chunks().fill_null(Long.MIN).to_numpy()
    epochs = np.searchsorted(np.array(log_begins), times, side="right")
    sequences = staged["_sequence"].combine_chunks()
    first, *rest = sequences.flatten()
    numbers = first.fill_null(0).to_numpy()
    is_in_log = (numbers >= 0) & (epochs > 0)
    greatest = int(numbers[is_in_log].max(initial=0))
    if greatest >> EPOCH_BITS:
        raise ConfigError.of(
            "A restarted log has positions too large to be ordered after the old ones.",
            got=f"{sequences.type.field(0).name} {greatest}",
            allowed=f"a first number below 2^{EPOCH_BITS}",
            next_step="Run 'ebbtide rewind' to the step before 'ebbtide acknowledge', have the connector take a new snapshot into an empty topic or folder, and run 'ebbtide refresh'.",
        )
    numbers = numbers + np.where(is_in_log, epochs, 0) * 2**EPOCH_BITS
    first = pa.array(numbers, mask=first.is_null().to_numpy(zero_copy_only=False))
    moved = pa.StructArray.from_arrays([first, *rest], fields=list(sequences.type), mask=sequences.is_null())
    return with_sequences(staged, moved)
