"""The web console: where a person sees, decides and steps in."""
