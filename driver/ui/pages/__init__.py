"""The tab's pages: a status as HTML."""
