"""One row an API: the versions offered to clients, the listeners that offer it, its guard, its refusal.

Both sides share the rows. A row is a constant of a module here (`row.ApiRow`), one module an API or a small
family; `table` finds them, and `listeners` makes the tables of a listener and its guards of them. The handler
is a module of the side that answers.

Layers, lowest first: `parts` and `row` say what a row is, the modules of rows come next, then `table`, then
`listeners` and `cluster_actions`.
"""
