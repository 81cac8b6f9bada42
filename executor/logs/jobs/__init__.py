"""The jobs of log maintenance, a file each: `job` defines a job, `log_upkeep` lists them."""
