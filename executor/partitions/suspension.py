"""The reasons for which a leader serves nothing for now. It serves again when there is none."""

from enum import Enum


class Suspension(Enum):
    LEASE = "lease"
    """This broker's lease has run out."""
    TIER = "tier"
    """The manifest of its tier has not been read in this leader epoch: the log may begin or end elsewhere."""
