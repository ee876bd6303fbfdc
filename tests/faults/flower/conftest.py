"""Flower's own processes are found by what Linux tells of them."""

import sys

if not sys.platform.startswith("linux"):
    collect_ignore_glob = ["*"]
