"""The cluster's controller: candidate of the quorum, then leader of the metadata log, and its listeners."""
