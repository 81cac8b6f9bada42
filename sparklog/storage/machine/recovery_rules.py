"""What of a log may stay after its broker stopped, and whether the replica still has what it vouched for.

Pure. `SoundPrefix` is offered the batches of a log in their order and says where the log ends;
`what_is_missing` then compares that end with what earlier files promised. Rules kept:

- The log ends at the first batch that is not as it was written. A batch's base offset and leader epoch are
  not covered by its CRC: they are compared with what must follow here, and with the epochs in their file.
- A replica that lacks something it had (fsynced, or told to be committed) says so to the controller before it
  counts again: it is no member of an ISR and no leader until it has caught up with one.
- An append that was under way when the process was killed leaves the beginning of a batch. Nobody was told
  of that batch, so nothing is missing without it.
"""

from dataclasses import dataclass
from enum import Enum

from sparklog.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.types import LeaderEpoch, Offset


class PreviousStop(Enum):
    """How the last owner of a log directory ended."""

    CLEAN = "it closed every log"
    KILLED = "it was killed, and the machine went on: whatever it wrote is there"
    UNKNOWN = "the machine may have stopped too: of what was not fsynced anything may be missing"


@dataclass(frozen=True, slots=True)
class Cut:
    """What recovery had to cut off a log."""

    offset: Offset
    """Where the log ends now."""
    reason: str
    torn: bool
    """It was the beginning of one batch, such as an interrupted append leaves."""


class SoundPrefix:
    """How far a log is as it was written, batch by batch.

    Order for the caller: `offer` each batch until one is refused, then `finish`; each returns why the log
    must end at `end_offset`, or None. `checkpoint_is_wrong` then says whether the batches outvoted the
    epochs' file.
    """

    def __init__(
        self, expected_offset: Offset, checkpointed: LeaderEpochs, stop: PreviousStop, *, may_have_gaps: bool
    ) -> None:
        self.end_offset = expected_offset
        """The end of what is sound."""
        self.may_have_gaps = may_have_gaps
        """Offsets may be missing between batches (compaction)."""
        self.checkpoint_is_wrong = False
        self._checkpointed: LeaderEpochs | None = checkpointed if checkpointed.latest is not None else None
        self._stop = stop
        self._leader_epoch: LeaderEpoch | None = None
        self._doubted: tuple[Offset, LeaderEpoch] | None = None
        """Base offset and epoch of the last batch, where the epochs' file says otherwise."""

    def offer(
        self, base_offset: Offset, last_offset: Offset, leader_epoch: LeaderEpoch, *, crc_matches: bool
    ) -> str | None:
        """Take the next batch of the log; return why it is refused, if it is."""
        if not crc_matches:
            return self._refused(f"the CRC of the batch at offset {base_offset} is another one")
        if base_offset < self.end_offset or (base_offset > self.end_offset and not self.may_have_gaps):
            return self._refused(f"a batch has offset {base_offset}, expected is {self.end_offset}")
        refusal = self._check_epoch(base_offset, leader_epoch)
        if refusal is None:
            self.end_offset = last_offset + 1
            self._leader_epoch = leader_epoch
        return refusal

    def finish(self) -> str | None:
        """The log has no further batch; return why its last one is refused, if it is."""
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
                # The file has the epoch begin between batches.
                self._believe_batches()
                return None
            return self._convict(doubted)
        if doubted is None:
            self._doubted = base_offset, leader_epoch
            return None
        if doubted[1] == leader_epoch:
            # Two batches against one file.
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
        """Whether the file need not know the epoch: it is written before the batch, but not fsynced."""
        latest = None if self._checkpointed is None else self._checkpointed.latest
        return self._stop is PreviousStop.UNKNOWN and latest is not None and leader_epoch > latest

    def _convict(self, doubted: tuple[Offset, LeaderEpoch]) -> str:
        self._doubted = None
        self.end_offset = doubted[0]
        return self._wrong_epoch(*doubted)

    def _wrong_epoch(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> str:
        return f"the batch at offset {base_offset} has leader epoch {leader_epoch}, which it cannot have"


def what_is_missing(
    stop: PreviousStop,
    log_end_offset: Offset,
    *,
    recovery_point: Offset,
    high_watermark: Offset,
    cut: Cut | None,
) -> str | None:
    """Return what a recovered log lacks of what this replica had, None if nothing is known to be missing.

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
