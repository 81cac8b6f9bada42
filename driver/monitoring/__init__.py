"""What the driver knows of its cluster's nodes by their metrics, and whom it tells."""
