"""Judge every connection that a tool makes, in one place."""
