"""What whoever opens the Spark UI sees of the cluster: the Log tab, and the same as JSON."""
