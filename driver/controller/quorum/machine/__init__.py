"""The rules of the metadata quorum: the leader's election, and the high watermark. Pure."""
