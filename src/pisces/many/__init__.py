"""Many runs: what each is, who makes them and where, and what is left of those begun before."""
