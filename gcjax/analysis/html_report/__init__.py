"""A page about a run or a trace: one file that needs nothing else, for a browser on any screen."""
