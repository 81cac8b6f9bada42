"""The user's side: the client, DataFrames and the exactly-once sink."""
