"""The runs of records of one day or hour in the batches of a log (`executor.tiering.machine.piece_cut`)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sparklog.node.remote_log.segments.log_rows import LogRows
from sparklog.node.remote_log.segments.segment_format import US_PER_MS
from sparklog.node.remote_log.segments.segment_writer import row_bytes
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.types import Offset


class PeriodRun(NamedTuple):
    """Neighbouring batches of one period; `period` is `None` for one batch with records of several."""

    base_offset: Offset
    period: int | None
    size_bytes: int
    """About the size of the run's records as columns."""


def period_runs(found: LogRows, period_ms: int) -> Iterator[PeriodRun]:
    """Yield the runs of records in the order of their offsets; there is at least one record.

    A run begins at the base offset of its first batch, of which compaction may have removed the record.
    """
    rows = found.rows
    offsets = rows.column("offset").to_numpy()
    periods = rows.column("timestamp").view("int64").to_numpy() // (period_ms * US_PER_MS)
    bases = np.fromiter((header.base_offset for _, header in iterate_headers(found.batches)), dtype=np.int64)
    batches, firsts = np.unique(bases.searchsorted(offsets, side="right") - 1, return_index=True)
    lowest, highest = np.minimum.reduceat(periods, firsts), np.maximum.reduceat(periods, firsts)
    is_mixed = lowest != highest
    begins = np.ones(len(firsts), dtype=np.bool_)
    begins[1:] = (lowest[1:] != lowest[:-1]) | is_mixed[1:] | is_mixed[:-1]
    runs = np.flatnonzero(begins)
    # Not by `rows.nbytes`: a column of views counts the whole buffer that it shares with other rows.
    sizes = np.add.reduceat(row_bytes(rows), firsts[runs])
    for run, size_bytes in zip(runs, sizes, strict=True):
        yield PeriodRun(
            int(bases[batches[run]]), None if is_mixed[run] else int(lowest[run]), int(size_bytes)
        )
