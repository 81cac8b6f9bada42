"""The APIs of the controller's listener: `table` has each one's handler; a module for each kind."""
