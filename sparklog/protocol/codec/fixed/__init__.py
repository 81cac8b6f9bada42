"""Messages of the hot path, read and written without entities where they have the usual shape."""
