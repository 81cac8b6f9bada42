"""A broker and its controller: the connection, what is sent over it, and the broker's life."""
