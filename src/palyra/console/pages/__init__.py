"""One module for each page: what it shows, and what can be done on it."""
