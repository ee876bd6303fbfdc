"""The side that has the data: trains what it is asked to; needs no torch."""
