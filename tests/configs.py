"""The config of a run that takes a moment."""

from __future__ import annotations

SMALL = """
[clients]
count = 12
concurrency = 4
[data]
size = 12
[model]
hidden = [8]
[train]
learning_rate = 0.1
batch_size = 8
device = "cpu"
backend = "sequential"
[latency]
min_s = 2
max_s = 20
[evaluate]
every_s = 10
[stop]
time_s = 60
target = 0.99
"""
