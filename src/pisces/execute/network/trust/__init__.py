"""Who is who: certificates, their authority, and TLS."""
