"""The decisions about the copy of the metadata log. Pure."""
