"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members report what they own. Pure."""
