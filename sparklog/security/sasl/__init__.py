"""The mechanisms of SASL, both sides of each: no socket, only what is said and what is to be answered."""
