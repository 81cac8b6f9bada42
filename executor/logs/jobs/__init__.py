"""The jobs that keep logs up, a file each: `job` says what one is, `log_upkeep` which there are."""
