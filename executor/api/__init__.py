"""The APIs of a broker, one file each."""
