"""The transaction coordinator: who may write under a transactional id, and how each transaction ends."""
