"""Authorization of requests: the operations that APIs check against the ACLs, and responses to denials.

The functions of `guards` run before the handler of an API, as named in its row (`sparklog/node/apis`). A
listener's dispatcher uses `authorization`.
"""
