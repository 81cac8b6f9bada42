"""Record batches (message format v2, KIP-98): headers, codecs, and conversion to and from Arrow columns.

`batch` reads, checks and stamps the 61-byte header, the only part that brokers usually read. `decode` and
`encode` convert whole batches to Arrow columns and back without a Python object per record; `builder` does
the same record by record, for the few records of control batches and of the metadata log.
"""
