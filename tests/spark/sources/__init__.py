"""Topics as DataFrames, of a session that both files of tests share, and of one cluster beside it."""
