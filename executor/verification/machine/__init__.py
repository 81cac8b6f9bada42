"""The decisions about requests to coordinators. Pure."""
