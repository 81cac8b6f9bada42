"""What handlers decide: pure; events and requests in, outcomes out."""
