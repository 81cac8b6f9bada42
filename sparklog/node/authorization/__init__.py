"""Which request may do what: what each API asks of the ACLs, and how it is answered that it may not.

`guards` has what stands before the handler of each API, and the row of the API (`sparklog/apis`) names which;
`authorization` is what a listener's dispatcher is given.
"""
