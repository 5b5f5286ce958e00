"""Cedar policies over the entities of a request: decided, explained, tested and replayed."""
