"""The tier of the log in an object store (KIP-405): its objects, and the manifests that name them."""
