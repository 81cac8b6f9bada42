"""The transaction coordinator: producers of transactional ids, and the end of each transaction."""
