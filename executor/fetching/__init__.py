"""The follower's side of Fetch: fetchers, and suspicions of lost brokers."""
