"""Index files of a segment: offsets, timestamps and aborted transactions."""
