"""Readers of the formats datasets come in; none of them runs what a file says."""
