"""Compaction: the last record of every key stays, earlier ones are removed (Kafka's log cleaner).

`cleaner` reads a log's sealed segments and writes the remaining records beside them, as `.cleaned` files; it
runs in a separate process (`process`). `replacement` then puts these files in the place of their sources. All
work is done on a window of batches at a time, in columns.
"""
