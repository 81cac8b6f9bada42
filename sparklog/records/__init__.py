"""Record batches (message format v2, KIP-98): headers, codecs, and the way to and from Arrow columns.

`batch` reads, checks and stamps the 61-byte header, which is all a broker ever looks at. `decode` and
`encode` turn whole batches into Arrow columns and back without a Python object a record; `builder` does
the same record by record, for the few records of control batches and of the metadata log.
"""
