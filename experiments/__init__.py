"""Studies: one file each, run by `gcjax run` with a config file that imports it."""
