"""http.fetch: one request to the web through the egress judge, and what came back as data that nobody should obey."""
