"""In which order workers process their chunks: for the worst case, and for workers of known speeds."""
