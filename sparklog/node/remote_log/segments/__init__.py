"""Remote segments: pieces of a partition's log as Parquet objects."""
