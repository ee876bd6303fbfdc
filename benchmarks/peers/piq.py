"""Stands in for the package `piq`, which APPFL imports for reports on image quality, unused here.

The real one needs a torchvision built against the very same torch; beside a CPU build of torch the
usual one does not load.
"""
