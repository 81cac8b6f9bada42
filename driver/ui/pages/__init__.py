"""How the tab looks: what a status says, as HTML."""
