"""What decides in the metadata quorum: who becomes its leader, and what is committed. Pure."""
