"""The end of a move between directories: a future log replaces the partition's log in another directory.

A future log has a directory `<topic>-<partition>.<unique>-future`, as in Kafka, and is not a replica until
that is renamed to `<topic>-<partition>` (`promote`). Rule kept: that is one rename, so a crash leaves either
the old log, with a future log that can be deleted or completed, or two logs of the partition, of which the
complete one is the one reported to the controller before. For the thread that changes both logs.

Source: Kafka's LogManager.replaceCurrentWithFutureLog; KIP-113.
"""

from sparklog.node.storage.files import storage_errors
from sparklog.node.storage.log.log_state import LogState


def promote(state: LogState) -> None:
    """Rename a future log's directory to that of its partition, which must not exist. Nothing is fsynced.

    No other thread may use the log meanwhile.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; it is still a future log.
    """
    directory = state.directory.with_name(str(state.topic_partition))
    with storage_errors(f"rename {state.directory} to {directory}"):
        state.directory.rename(directory)
    state.move_to(directory)


def take_place(successor: LogState, current: LogState) -> None:
    """Make a future log, which has caught up with the current one, the log of its partition.

    It takes over the state that its batches lack: producers whose batches are gone, and the cleaned offset.
    Pending look-ups in the closed log continue in this one.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; nothing has changed.
    """
    assert successor.log_end_offset == current.log_end_offset, f"{successor.directory} lacks records"
    promote(successor)
    successor.producers = current.producers
    successor.cleaned_offset = current.cleaned_offset
    successor.config = current.config
    current.successor = successor
