"""The cluster's controller: the election, the lead of the metadata log, and the listeners."""
