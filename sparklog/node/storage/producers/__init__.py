"""Producer state beside a log: snapshots, replay and transaction markers."""
