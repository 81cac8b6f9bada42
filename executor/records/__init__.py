"""The checks of the records inside a batch before a broker appends them."""
