"""Decodes quarantined records again with the present spec, as stored or as corrected by a user."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import OffsetRanges
from ebbtide.columns import Ints, Mask, ints, with_column
from ebbtide.errors import ConfigError
from ebbtide.formats import RECORDS, Decoding
from ebbtide.model import BatchSummary
from ebbtide.redaction import MASK
from ebbtide.runtime import ErasureKey, Plan, Staged
from ebbtide.storage import Location

TOO_LARGE = "too_large"
"""The reason of a record that is too long: only its first bytes were kept."""
TRANSFORM_FAILED = "transform_failed"
"""The reason of a record whose row fails in a transform: unchanged, it fails again."""
RECORDS_PER_BATCH = 1_000
"""Records that are decoded together."""

Origin = tuple[str, int, int]
"""Position of a record in its source: source, partition, position."""
Place = tuple[int, ...]
"""Position of a record among those that are decoded again: step, its index, position in it."""
Corrected = Mapping[Origin, bytes]
"""Corrected records by the origins of the records that they replace."""


@dataclass(frozen=True)
class Redecoded:
    """The result of decoding quarantined records again.

    Args:
        plan: The pipeline.
        tried: (n,) the decoded records, with the quarantine's columns, the oldest first.
        is_corrected: (n,) true if a corrected record was decoded instead.
        good: Staged rows of records that are now good; `_order.part` is the record's index in `tried`.
        bad: Order, reason and detail of the records that are still bad, with the same index.
        cut_off: Records that are not decoded again unless they are corrected: only their first bytes were kept, or their rows fail
            in a transform.
        is_erased: (n,) true for records of erased keys, as decoded: neither `good` nor `bad` has them.
        erased: Name of the file of the ledger of erasures.
    """

    plan: Plan
    tried: pa.Table
    is_corrected: Mask
    good: pa.Table
    bad: pa.Table
    cut_off: pa.Table
    is_erased: Mask
    erased: str | None

    @property
    def refused(self) -> pa.Table:
        """The records of erased keys: they leave the quarantine and are not applied."""
        return self.tried.filter(pa.array(self.is_erased))

    @property
    def replayed(self) -> pa.Table:
        """The records that are good now, or change nothing."""
        is_good = ~self.is_erased
        is_good[self._bad_indices] = False
        mask = pa.array(is_good)
        return self.tried.filter(mask)

    @property
    def still_bad(self) -> pa.Table:
        """The records that are bad, with their reasons as of now."""
        indices = pa.array(self._bad_indices)
        records = self.tried.take(indices)
        for name in ("reason", "detail"):
            records = with_column(records, name, self.bad[f"_{name}"])
        return records

    @property
    def rewritten(self) -> pa.Table:
        """The records that are still bad, but for another reason or detail than the quarantine holds."""
        indices = self._bad_indices
        before = self.tried.take(pa.array(indices))
        now = self.still_bad
        other_reason = pc.not_equal(before["reason"], now["reason"])
        other_detail = pc.not_equal(before["detail"], now["detail"])
        is_changed = pc.or_(other_reason, other_detail)
        # Reason and bytes belong together: a corrected record's bytes are not stored, and `too_large` means that the
        # bytes are a head.
        is_own = pa.array(~self.is_corrected[indices])
        is_whole = pc.not_equal(now["reason"], TOO_LARGE)
        can_be_stored = pc.and_(is_own, is_whole)
        is_out_of_date = pc.and_(is_changed, can_be_stored)
        return now.filter(is_out_of_date)

    @property
    def summary(self) -> BatchSummary:
        """The totals of applied records; the step that met the records has counted them."""
        summary = self.plan.decoding.summarize(self.good, tracks_offsets=self.plan.tracks_offsets)
        return summary.with_counts(records=0, erased=int(self.is_erased.sum()))

    def staged(self, folder: str) -> Staged:
        """Write the staged rows to apply.

        Args:
            folder: Folder of the file.
        """
        stager = self.plan.stager(folder, ErasureKey.refused(self.plan, self.erased))
        file = stager.stage([self.good])
        origins = self.replayed.select(["origin"])
        offsets = OffsetRanges.in_rows(origins.rename_columns(["_origin"]))
        return Staged(
            (file,),
            self.summary,
            replayed=offsets,
            find=self._records,
        )

    def _records(self, orders: Sequence[Place]) -> dict[Place, tuple[dict[str, Any], bytes]]:
        """Find records by their order; the part of an order is the record's index in `tried`. See `ebbtide.runtime._stage.Find`."""
        found = {}
        records = self.tried.select(["origin", "raw"])
        for order in orders:
            _, index, _ = order
            if index < len(records):
                [record] = records.slice(index, 1).to_pylist()
                found[order] = record["origin"], record["raw"]
        return found

    @property
    def _bad_indices(self) -> Ints:
        return ints(self.bad, "_order.part")


def redecoded(
    plan: Plan,
    records: pa.Table,
    corrected: Corrected,
    *,
    step: int,
    wall_ms: int | None,
    erased: str | None,
    log_begins: Sequence[int],
) -> Redecoded:
    """Decode quarantined records again.

    Args:
        records: Records with the quarantine's columns, the oldest first.
        corrected: Replaces records; empty: the stored records are decoded.
        step: Number of the step that replays them.
        wall_ms: Its wall time, epoch ms.
        erased: Name of the file of the ledger of erasures, of the last step's facts.
        log_begins: Event times at which the source's log restarted, from the same facts.
    """
    before = records["raw"]
    now = _corrected(records, corrected)
    is_corrected = pc.not_equal(before, now)
    skipped_reasons = pa.array([TOO_LARGE, TRANSFORM_FAILED])
    has_skipped_reason = pc.is_in(records["reason"], skipped_reasons)
    is_skipped = pc.and_(has_skipped_reason, pc.invert(is_corrected))
    is_tried = pc.invert(is_skipped)
    tried = with_column(records, "raw", now).filter(is_tried)
    was_corrected = is_corrected.filter(is_tried)
    decoding = _decoding(plan).after(log_begins)
    # Records are decoded as a batch of a source whose parts are their indices, so that each row leads back to its record.
    batches = decoding.decode(_batches(tried), step=step, wall_ms=wall_ms)
    decoded = pa.Table.from_batches(batches, decoding.schema)
    # A record keeps its place in the source: later writes of its key are newer.
    decoded = decoding.placed(decoded, tried["order"].take(pa.array(ints(decoded, "_order.part"))))
    # The stager leaves out rows of erased keys. They are left out here already, so that the report and the records that leave the
    # quarantine are known before staging.
    refused = ErasureKey.refused(plan, erased)
    rows = decoded if refused is None else refused(decoded)
    # A record may have several rows: it is refused if no row of it is left.
    parts = np.arange(len(tried))
    of_any = np.isin(parts, ints(decoded, "_order.part"))
    of_kept = np.isin(parts, ints(rows, "_order.part"))
    is_bad = pc.is_valid(rows["_reason"])
    bad = rows.filter(is_bad).select(["_order", "_reason", "_detail"])
    return Redecoded(
        plan,
        tried=tried,
        is_corrected=np.asarray(was_corrected.to_numpy(), dtype=bool),
        good=rows.filter(pc.invert(is_bad)),
        bad=bad,
        cut_off=records.filter(is_skipped),
        is_erased=of_any & ~of_kept,
        erased=erased,
    )


def _decoding(plan: Plan) -> Decoding:
    """Return the pipeline's decoding; in arrival mode a TRUNCATE stays bad, since it would delete later rows."""
    decoding = replace(plan.decoding, doubts_tombstones=False)
    if plan.spec.sequence:
        return decoding
    return replace(decoding, truncates=False)


def _corrected(records: pa.Table, corrected: Corrected) -> pa.ChunkedArray:
    """Return the records' bytes; for corrected records the new bytes."""
    origins = records["origin"].to_pylist()
    raws = records["raw"].to_pylist()
    for index, origin in enumerate(origins):
        key = origin_of(origin)
        raws[index] = corrected.get(key, raws[index])
    return pa.chunked_array([raws], pa.binary())


def _batches(records: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield records like a source; each is a separate part, so that they apply in their order."""
    n_records = len(records)
    origins = records["origin"].combine_chunks()
    columns = {
        "file": pc.struct_field(origins, "source"),
        "part": pa.array(np.arange(n_records)),
        "line": pc.struct_field(origins, "position"),
        "value": records["raw"],
    }
    table = pa.table(columns).cast(RECORDS)
    yield from table.combine_chunks().to_batches(max_chunksize=RECORDS_PER_BATCH)


def origin_of(origin: Mapping[str, Any]) -> Origin:
    """Return an origin in the form for matching records."""
    return origin["source"], origin["partition"], origin["position"]


def with_origins(records: pa.Table, origins: Corrected) -> pa.Table:
    """Pick the records with some origins."""
    own = records["origin"].to_pylist()
    is_meant = [origin_of(origin) in origins for origin in own]
    mask = pa.array(is_meant, pa.bool_())
    return records.filter(mask)


def read_corrected(location: str) -> dict[Origin, bytes]:
    """Read corrected records: JSON lines with `origin` and `raw`, as `ebbtide quarantine show --json` writes them.

    Args:
        location: Of the file.

    Returns:
        Each record's bytes by the origin of the record that it replaces.

    Raises:
        ConfigError: no such file; a line that is not such an object; two lines with one origin.
    """
    content = Location(location).read_bytes()
    if content is None:
        raise ConfigError.of("The file of corrected records does not exist.", got=location)
    corrected: dict[Origin, bytes] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        origin, raw = _corrected_line(line, f"Line {number} of '{location}'")
        if origin in corrected:
            raise ConfigError.of(f"Line {number} of '{location}' has the origin of an earlier one.", got=origin)
        corrected[origin] = raw
    return corrected


def _corrected_line(line: bytes, where: str) -> tuple[Origin, bytes]:
    try:
        given = json.loads(line)
        source, partition, position = origin_of(given["origin"])
        raw = given["raw"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError.of(
            f"{where} is not a corrected record.",
            got=f"{type(error).__name__}: {error}",
            allowed='{"origin": {"source": ..., "partition": ..., "position": ...}, "raw": "the record"}',
        ) from error
    if not isinstance(raw, str) or not raw.strip():
        raise ConfigError.of(
            f"{where} has no record.",
            got=f"raw: {raw!r}",
            allowed="the corrected record as text",
        )
    if raw == MASK:
        raise ConfigError.of(
            f"{where} has a record whose personal values were masked.",
            got=raw,
            allowed="the corrected record as text",
            next_step="Write the records with 'ebbtide quarantine show --json --show-personal', and correct these.",
        )
    return (source, partition, position), raw.encode()
