"""The functions that are timed, by phase. A tree need not have all of them.

The time of a function that is not listed belongs to the phase of its nearest listed caller.
"""

from typing import Final

from benchmarks.microscope.stopwatch import (
    FETCH,
    FOLLOWER,
    LOOP,
    PRODUCE,
    Measured,
    always,
    by_connection,
    by_exchange,
    by_frame,
)

_SERVING: Final = "sparklog.node.serving"
_STORAGE: Final = "sparklog.node.storage"
_FETCHING: Final = "sparklog.executor.fetching"
_PARTITIONS: Final = "sparklog.executor.partitions"
_PRODUCE_API: Final = "sparklog.executor.api.produce"
_FETCH_API: Final = "sparklog.executor.api.fetch"
_FIXED: Final = "sparklog.protocol.codec.fixed"

CAPTURED: Final = (
    Measured(f"{_SERVING}.connection:Connection._on_readable", "receive, frame", by_connection),
    Measured("sparklog.node.calling.channel:Channel._on_readable", "receive, frame", always(FOLLOWER)),
    Measured(f"{_PRODUCE_API}.produce:ProduceHandler.handle", "handler", always(PRODUCE)),
    Measured(f"{_FETCH_API}.fetch:FetchHandler.handle", "session, progress", always(FETCH)),
    Measured(f"{_FIXED}.fetch:read_request", "decode"),
    Measured(f"{_FIXED}.produce:_read_by_name", "decode"),
    Measured(f"{_FIXED}.produce:_read_by_id", "decode"),
)
"""Functions that are bound once and kept: by a loop's reader, or by a table of handlers."""

MEASURED: Final = (
    # Both sides of a connection.
    Measured(f"{_SERVING}.connection:Connection._handle_received", "receive, frame", by_connection),
    Measured(f"{_SERVING}.dispatcher:Dispatcher.dispatch", "admission, dispatch", by_frame),
    Measured(f"{_SERVING}.dispatcher:read_request_header", "decode"),
    Measured(f"{_SERVING}.dispatcher:read_request_body", "decode"),
    Measured(f"{_SERVING}.dispatcher:Exchange._answer_fixed", "answer"),
    Measured(
        f"{_SERVING}.dispatcher:Exchange._completed",
        "answer",
        by_exchange,
        f"{_SERVING}.dispatcher:Dispatcher.completed",
    ),
    Measured(
        f"{_SERVING}.dispatcher:Exchange._answer",
        "answer",
        former=f"{_SERVING}.dispatcher:Dispatcher._answer",
    ),
    Measured(f"{_SERVING}.connection:Connection.flush", "send", by_connection),
    Measured(f"{_SERVING}.outbox:Outbox._write_region", "sendfile"),
    # Produce.
    Measured(
        f"{_PRODUCE_API}.produce:ProduceHandler._append",
        "validate",
        always(PRODUCE),
        f"{_PRODUCE_API}.produce:append_produced",
    ),
    Measured(
        f"{_PRODUCE_API}.produce:validate_produced",
        "validate",
        former=f"{_PRODUCE_API}.partition_appends:validate_produced",
    ),
    Measured(
        f"{_PRODUCE_API}.produce:examine",
        "examine records",
        former=f"{_PRODUCE_API}.produce_examination:examine",
    ),
    Measured(f"{_PRODUCE_API}.produce:produce_response", "answer"),
    Measured(f"{_PARTITIONS}.replica:Replica.append", "append", always(PRODUCE)),
    # The log of either side.
    Measured(f"{_STORAGE}.segments.segment:Segment.append", "append"),
    Measured(f"{_STORAGE}.file_region:LogFile.pwrite", "write"),
    Measured(f"{_STORAGE}.index.offset_index:OffsetIndex.append", "indexes"),
    Measured(f"{_STORAGE}.index.time_index:TimeIndex.maybe_append", "indexes"),
    # Fetch.
    Measured(f"{_FETCH_API}.fetch:DelayedFetch.recheck", "session, progress", always(FETCH)),
    Measured(f"{_FETCH_API}.fetch:read_partition", "read"),
    Measured(f"{_PARTITIONS}.replica:Replica.handle", "follower's progress", always(FETCH)),
    Measured(f"{_FETCH_API}.fetch:fetch_response", "answer"),
    Measured(f"{_FETCH_API}.fetch:follower_response", "answer"),
    # Followers.
    Measured("sparklog.node.calling.channel:decode_response", "decode"),
    Measured(f"{_FETCHING}.fetcher:Fetcher._take_in", "take in", always(FOLLOWER)),
    Measured(f"{_PARTITIONS}.replica:Replica.take_fetched", "append", always(FOLLOWER)),
    Measured(f"{_FETCHING}.fetcher:Fetcher._send", "next request", always(FOLLOWER)),
    Measured(f"{_FETCHING}.leader_fetches:LeaderFetches.next_request", "next request", always(FOLLOWER)),
    # The loop.
    Measured("sparklog.node.loop.loop_lag:TurnSelector.select", "select", always(LOOP)),
)
