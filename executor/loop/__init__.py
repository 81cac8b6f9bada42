"""How work shares the event loop: tasks that belong together, and long work a slice at a time."""
