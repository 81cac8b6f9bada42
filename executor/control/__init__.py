"""A broker and its controller: the connection, the requests on it, and the broker's lifecycle."""
