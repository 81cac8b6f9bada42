"""A broker's process: the barrier task, its watchdog, its memory."""
