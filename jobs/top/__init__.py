"""The overview of a cluster in a terminal, of the Log tab's data: `sparklog-top http://DRIVER:4040`."""
