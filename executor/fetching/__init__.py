"""The follower's side of Fetch: who is fetched from, and how."""
