"""One decoder process for all tests of a process: starting one takes as long as many of them."""

import contextlib
import threading
from functools import cache

from sparklog.executor.remote_reads.decoding.decoder_process import DecoderProcess
from sparklog.executor.remote_reads.decoding.exchange import BatchesRequest
from sparklog.executor.remote_reads.row_group import RowGroup
from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter


class LastingDecoder(DecoderProcess):
    """Serves several readers, each with a thread of its own, and outlives them; ends with the tests."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def footer(self, tail: bytes, name: str) -> SegmentFooter:
        with self._lock:
            return super().footer(tail, name)

    def row_group(self, request: BatchesRequest, footer: SegmentFooter, data: bytes) -> RowGroup:
        with self._lock:
            return super().row_group(request, footer, data)

    def end(self) -> None:
        pass


@cache
def lasting_decoder() -> LastingDecoder:
    """Return the decoder, with its process up."""
    decoder = LastingDecoder()
    with contextlib.suppress(CorruptSegmentError):
        decoder.footer(b"\0\0\0\0PAR1", "nothing")
    return decoder
