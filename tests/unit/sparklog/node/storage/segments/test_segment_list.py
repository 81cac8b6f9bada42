"""The segments of a log, as those who read see them while others go."""

from pathlib import Path

from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.segments.segment import Segment
from sparklog.node.storage.segments.segment_list import SegmentList
from sparklog.protocol.records.batch import read_header
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch


def test_offset_below_the_first_segment_is_not_looked_for_in_the_last(tmp_path: Path) -> None:
    """Retention may pass a reader that has just found its offset in the log: it got what lies behind."""
    segments = []
    for base_offset in (10, 14):
        batch = make_batch(4, base_offset=base_offset)
        segment = Segment.create(tmp_path, base_offset, LogConfig(), now_ms=START_MS)
        segment.append([batch], len(batch), [read_header(batch)], LogConfig())
        segments.append(segment)
    left = SegmentList(tmp_path, tuple(segments))
    for up_to_offset in (7, 12, 18):
        assert left.read(5, max_bytes=1000, up_to_offset=up_to_offset, min_one_batch=True) is None
