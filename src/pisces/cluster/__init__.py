"""Other machines: workers on the nodes of a cluster."""
