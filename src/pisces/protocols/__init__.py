"""Named protocols, each one composition of who, when, how (and whom to trust).

The keyword parameters are the protocol's settings; in a config file they stand in the table
`[protocols.NAME]`. `concurrency` (C) is how many clients may run at once. `names.py` names them.
"""
