"""The controller's part of the tier: the ownership of the prefix, and the metadata in the object store."""
