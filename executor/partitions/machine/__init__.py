"""The decisions about a partition: its ISR, its high watermark, and the steps of a follower. Pure."""
