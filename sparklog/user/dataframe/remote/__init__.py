"""Reads of a tiered topic's history from the object store: planned by manifests, read as Parquet by tasks."""
