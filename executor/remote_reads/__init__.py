"""Reads of records that only the object store has: row groups made into batches again, cached in memory."""
