"""The process that a broker is: the barrier task, its watchdog, its memory."""
