"""What both sides of the metadata quorum share: who votes, how long a log is, and the control records."""
