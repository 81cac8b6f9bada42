"""One log takes another's place, which lies in another directory: the end of a move between directories.

A future log has a directory `<topic>-<partition>.<unique>-future`, as in Kafka, and is no replica of anybody
until that is renamed to `<topic>-<partition>` (`promote`). Rule kept: that is one rename, so that after a
crash there is either the log that there was, with a future log beside it that can be thrown away or copied
on, or two logs of the partition, of which the one is whole that the controller was told of before. For the
thread that changes both logs.

Source: Kafka's LogManager.replaceCurrentWithFutureLog; KIP-113.
"""

from sparklog.storage.files import storage_errors
from sparklog.storage.log_state import LogState


def promote(state: LogState) -> None:
    """Give a future log the directory of its partition's log, which nobody has. Nothing is fsynced.

    Nobody else may use the log meanwhile.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; it is a future log still.
    """
    directory = state.directory.with_name(str(state.topic_partition))
    with storage_errors(f"rename {state.directory} to {directory}"):
        state.directory.rename(directory)
    state.move_to(directory)


def take_place(successor: LogState, current: LogState) -> None:
    """Have a future log, which has all that the current one has, be the log of its partition from now on.

    It also gets what the batches alone do not say: producers whose batches have gone, and how far the log is
    clean. Whoever looks something up in the other log when that is closed looks it up in this one.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR; nothing has changed.
    """
    assert successor.log_end_offset == current.log_end_offset, f"{successor.directory} lacks records"
    promote(successor)
    successor.producers = current.producers
    successor.cleaned_offset = current.cleaned_offset
    successor.config = current.config
    current.successor = successor
