"""Moving replicas between the directories of their broker (KIP-113, KIP-858)."""
