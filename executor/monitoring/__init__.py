"""What one broker measures of itself, and how the driver hears of it."""
