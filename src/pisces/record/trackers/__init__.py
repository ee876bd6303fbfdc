"""Trackers: what a run comes to, told to the tools people already use, while it goes on."""
