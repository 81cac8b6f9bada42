"""The Log tab of the Spark UI, and the same content as JSON."""
