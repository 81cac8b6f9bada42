"""Log directories: identity, checkpoints and locks."""
