"""Pure rules of log maintenance: times in, work out."""
