"""Who somebody is: secrets that nobody sees, and how the two ends of a connection prove who they are."""
