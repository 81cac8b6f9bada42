"""Compaction: the last record of every key stays, what it replaced goes (Kafka's log cleaner).

`cleaner` reads a log's sealed segments and writes what is left of them beside them, as `.cleaned` files; it
is run by a process of its own (`process`). `replacement` then puts these files in the place of those they
were made from. Everything is done a window of batches at a time, in columns.
"""
