"""The demonstration: a year of flights through a three-broker cluster, one broker killed on the way."""
