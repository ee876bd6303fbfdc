"""01: compare protocols on handwritten digits, three seeds each.

python examples/01_compare.py
"""

from statistics import median

from pisces import build, config
from pisces.simulation import run

SETTINGS = """
[clients]
count = 50
concurrency = 10

[data]
sizes = "lognormal"
size_median = 20
size_sigma = 1.0
alpha = 0.3

[train]
learning_rate = 0.05
batch_size = 16
epochs = 3

[evaluate]
every_s = 10

[stop]
time_s = 900
target = 0.85
"""

if __name__ == "__main__":
    for protocol in ("pisces", "fedbuff", "oort", "fedavg"):
        times, staleness = [], []
        for seed in (1, 2, 3):
            # The same seed gives every protocol the same clients, latencies and first weights.
            settings = config.parse(SETTINGS, [f"protocol={protocol}", f"seed={seed}"])
            result = run(build.simulation(settings), protocol=protocol)
            times.append(result.summary["time_to_target_s"] or float("inf"))
            staleness.append(result.summary["max_staleness"] or 0)
        print(f"{protocol:8} 85 % after {median(times):4.0f} s, staleness up to {max(staleness)}")
