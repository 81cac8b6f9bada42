"""Row groups made into batches, in a process of its own beside the broker's."""
