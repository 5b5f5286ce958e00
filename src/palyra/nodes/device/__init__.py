"""What every paired device has, whatever it is for: a key, a record of its pairing, and patience."""
