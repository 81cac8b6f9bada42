"""Logs on disk, byte for byte as Kafka keeps them: segments, indexes, checkpoints, recovery.

`Log` is one partition's log, `LogDirectory` one `log.dirs` entry with the logs under it. Everything here
blocks (it is files); what may be called on an event loop and what may not is said at each method.
"""
