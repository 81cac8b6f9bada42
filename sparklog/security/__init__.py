"""Authentication: secrets, certificates and tokens, and the exchanges in which both ends prove their
identity.
"""
