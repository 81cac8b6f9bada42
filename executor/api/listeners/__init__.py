"""The listeners of a broker: clients' and the quorum's."""
