"""The configuration keys of brokers, by the part that reads them."""
