"""File tools confined beneath a workspace root."""
