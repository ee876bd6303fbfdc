"""Tables and plots out of run folders, and of nothing else."""
