"""A page about a run: one file that needs nothing else, for a browser on any screen."""
