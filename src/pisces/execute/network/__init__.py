"""The real network: gRPC and mutual TLS."""
