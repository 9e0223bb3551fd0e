"""The synchronous program algebra: what protocols guarantee, checked on small instances."""
