"""TLS on accepted connections: handshakes, encrypted streams and the file regions sent through them."""
