"""What a broker answers: a file an API."""
