"""What decides about the logs' upkeep: pure, in comes the time, out comes what is due."""
