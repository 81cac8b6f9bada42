"""The log `__cluster_metadata` of every replica, the controller's and the voters' on brokers.

`SnapshotStore` has the snapshots beside the log and lets the log start at one of them; `SnapshotTaker` writes
the next one by `SnapshotSchedule`. `ServedLog` answers Fetch, `fetch_snapshot_response` FetchSnapshot.
`machine` has the contents of a snapshot and the rules for taking and fetching one; the control records; and
the voter set. Source: KIP-595, KIP-630, KIP-853.
"""
