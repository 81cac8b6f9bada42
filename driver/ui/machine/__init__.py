"""What the tab says: made of the committed image and of what is known of racks, brokers and queries."""
