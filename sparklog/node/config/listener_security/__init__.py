"""TLS and SASL settings of a listener, built from its keys."""
