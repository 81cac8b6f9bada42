"""What a broker must know of the records inside a batch before it appends them."""
