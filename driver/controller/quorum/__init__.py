"""The driver's side of the metadata quorum: its election as leader, and the high watermark."""
