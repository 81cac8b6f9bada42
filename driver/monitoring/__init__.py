"""The metrics of the cluster's nodes and clients in the driver, and their export."""
