"""The core of a node, which brokers and the controller share."""
