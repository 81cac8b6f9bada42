"""Pure rules of the controller's process: restarts, and instructions repeated to the next one."""
