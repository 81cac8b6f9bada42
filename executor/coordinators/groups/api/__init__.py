"""The APIs of the group coordinator on a broker's listener, a file an API."""
