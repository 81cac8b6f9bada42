"""The log `__cluster_metadata` as every replica keeps it, the controller's and the voters' on the brokers.

`SnapshotStore` has the snapshots beside the log and begins the log at one of them; `SnapshotTaker` writes
the next when `SnapshotSchedule` says so. `ServedLog` answers Fetch, `fetch_snapshot_response` FetchSnapshot.
In `machine` lies what a snapshot consists of, when one is due and who needs one; the control records; and
who votes. Source: KIP-595, KIP-630, KIP-853.
"""
