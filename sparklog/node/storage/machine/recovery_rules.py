"""Rules of recovery: the sound part of a log after a stop, and whether committed records are lost.

Pure. `SoundPrefix` is offered the batches of a log in their order and finds the log's end; `what_is_missing`
then compares that end with the checkpoints. Rules kept:

- The log ends at the first batch that differs from what was written. A batch's CRC does not cover its base
  offset and leader epoch: these are compared with the expected offset, and with the epochs in their file.
- A replica that lacks records it had (fsynced, or known to be committed) reports that to the controller
  before it counts again: it is in no ISR and not a leader until it has caught up.
- An append that was interrupted by a kill leaves the beginning of a batch. That batch was never acknowledged,
  so nothing is missing without it.
"""

from dataclasses import dataclass
from enum import Enum

from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.protocol.types import LeaderEpoch, Offset


class PreviousStop(Enum):
    """How the last owner of a log directory ended."""

    CLEAN = "it closed every log"
    KILLED = "it was killed, and the machine went on: all its writes are there"
    UNKNOWN = "the machine may have stopped too: writes without an fsync may be missing"


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a log that recovery cut off."""

    offset: Offset
    """New end of the log."""
    reason: str
    torn: bool
    """Whether it is the beginning of one batch, as an interrupted append leaves it."""


class SoundPrefix:
    """The sound part of a log, batch by batch.

    Order for the caller: `offer` each batch until one is refused, then `finish`; each returns the reason why
    the log must end at `end_offset`, or None. `checkpoint_is_wrong` then tells whether the batches outvoted
    the epochs' file.
    """

    def __init__(
        self, expected_offset: Offset, checkpointed: LeaderEpochs, stop: PreviousStop, *, may_have_gaps: bool
    ) -> None:
        self.end_offset = expected_offset
        """Exclusive end of the sound part."""
        self.may_have_gaps = may_have_gaps
        """Whether offsets may be missing between batches (compaction)."""
        self.checkpoint_is_wrong = False
        self._checkpointed: LeaderEpochs | None = checkpointed if checkpointed.latest is not None else None
        self._stop = stop
        self._leader_epoch: LeaderEpoch | None = None
        self._doubted: tuple[Offset, LeaderEpoch] | None = None
        """Base offset and epoch of the last batch, if they contradict the epochs' file."""

    def offer(
        self, base_offset: Offset, last_offset: Offset, leader_epoch: LeaderEpoch, *, crc_matches: bool
    ) -> str | None:
        """Take the next batch of the log; return the reason if it is refused."""
        if not crc_matches:
            return self._refused(f"the CRC of the batch at offset {base_offset} does not match")
        if base_offset < self.end_offset or (base_offset > self.end_offset and not self.may_have_gaps):
            return self._refused(f"a batch has offset {base_offset}, expected is {self.end_offset}")
        refusal = self._check_epoch(base_offset, leader_epoch)
        if refusal is None:
            self.end_offset = last_offset + 1
            self._leader_epoch = leader_epoch
        return refusal

    def finish(self) -> str | None:
        """End the log; return the reason if its last batch is refused."""
        return self._settle_doubt()

    def _refused(self, reason: str) -> str:
        return self._settle_doubt() or reason

    def _check_epoch(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> str | None:
        checkpointed = self._checkpointed
        expected = None if checkpointed is None else checkpointed.epoch_at(base_offset)
        if checkpointed is None or expected is None:
            if self._leader_epoch is not None and leader_epoch < self._leader_epoch:
                return self._wrong_epoch(base_offset, leader_epoch)
            return None
        doubted = self._doubted
        if leader_epoch == expected:
            if doubted is None:
                return None
            if (
                doubted[1] == leader_epoch
                and EpochEntry(leader_epoch, base_offset) not in checkpointed.entries
            ):
                # The file lets the epoch begin between batches.
                self._believe_batches()
                return None
            return self._convict(doubted)
        if doubted is None:
            self._doubted = base_offset, leader_epoch
            return None
        if doubted[1] == leader_epoch:
            # Two batches outvote the file.
            self._believe_batches()
            return None
        if self._may_be_newer(doubted[1]) and leader_epoch > doubted[1]:
            self._doubted = base_offset, leader_epoch
            return None
        return self._convict(doubted)

    def _believe_batches(self) -> None:
        self.checkpoint_is_wrong = True
        self._checkpointed = self._doubted = None

    def _settle_doubt(self) -> str | None:
        doubted = self._doubted
        if doubted is None or self._may_be_newer(doubted[1]):
            return None
        return self._convict(doubted)

    def _may_be_newer(self, leader_epoch: LeaderEpoch) -> bool:
        """Whether the file may lack the epoch: it is written before the batch, but not fsynced."""
        latest = None if self._checkpointed is None else self._checkpointed.latest
        return self._stop is PreviousStop.UNKNOWN and latest is not None and leader_epoch > latest

    def _convict(self, doubted: tuple[Offset, LeaderEpoch]) -> str:
        self._doubted = None
        self.end_offset = doubted[0]
        return self._wrong_epoch(*doubted)

    def _wrong_epoch(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> str:
        return f"the batch at offset {base_offset} has leader epoch {leader_epoch}, which it cannot have"


def tiered_start(
    stop: PreviousStop,
    first_local_offset: Offset,
    *,
    checkpointed_start: Offset | None,
    epochs_start: Offset | None,
    is_tiered: bool,
) -> Offset | None:
    """Return the start of a log whose first records are in the tier alone; None if its files have them all.

    `checkpointed_start` is the log start offset in the checkpoint (None without an entry: a log that begins
    with its files has none), `epochs_start` the first offset of the epochs' file, which is cut when the start
    moves; None if the file says nothing of the tier's part. After a stop of the machine both may be of an
    earlier time: the later one counts, and only if the log `is_tiered` by its configuration. Nothing is known
    then of a log whose files were not fsynced: it starts at 0 until its leader has read what the tier has.

    >>> tiered_start(PreviousStop.CLEAN, 100, checkpointed_start=20, epochs_start=20, is_tiered=False)
    20
    >>> tiered_start(PreviousStop.CLEAN, 100, checkpointed_start=None, epochs_start=20, is_tiered=True)
    >>> tiered_start(PreviousStop.UNKNOWN, 100, checkpointed_start=None, epochs_start=None, is_tiered=True)
    0
    """
    start: Offset | None
    match stop:
        case PreviousStop.CLEAN:
            start = checkpointed_start
            if start is not None and epochs_start is not None and epochs_start > start:
                return None
        case PreviousStop.KILLED:
            start = checkpointed_start if epochs_start is None else epochs_start
        case PreviousStop.UNKNOWN:
            known = [each for each in (checkpointed_start, epochs_start) if each is not None]
            start = max(known, default=0) if is_tiered else None
    return start if start is not None and start < first_local_offset else None


def what_is_missing(
    stop: PreviousStop,
    log_end_offset: Offset,
    *,
    recovery_point: Offset,
    high_watermark: Offset,
    cut: Cut | None,
) -> str | None:
    """Describe the records that a recovered log has lost; None if none are known to be missing.

    `recovery_point` and `high_watermark` are the last that were checkpointed.

    >>> what_is_missing(PreviousStop.KILLED, 40, recovery_point=10, high_watermark=40, cut=None)
    >>> what_is_missing(PreviousStop.UNKNOWN, 38, recovery_point=10, high_watermark=40, cut=None)
    'it ends at 38, and was committed up to 40'
    """
    if log_end_offset < high_watermark:
        return f"it ends at {log_end_offset}, and was committed up to {high_watermark}"
    if log_end_offset < recovery_point:
        return f"it ends at {log_end_offset}, and was fsynced up to {recovery_point}"
    if cut is not None and not cut.torn and stop is not PreviousStop.UNKNOWN:
        return f"it was cut at {cut.offset}: {cut.reason}"
    return None
