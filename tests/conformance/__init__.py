"""What every named protocol is held to. One table, one row each: `table.py`.

A protocol without a row fails `test_table.py`, which says what to add. A row holds

* `who`, `when`, `how`: kinds of its policies, and what these answer in the scenes of `scenes.py`,
  worked out by hand from the paper's formula, through the protocol as composed by name and with its
  default settings (`forms`: with others);
* what it promises beyond that: that it is FedAvg among equals, that the order of updates does not
  matter, where it takes a convex problem. What it does not promise is a reason, in words, and a
  test that it really does not.

The checks:

    test_table.py          every protocol has a row, every row a protocol; kinds; short compositions
    test_numbers.py        the numbers of the table, also with other names and other units
    test_learned.py        numbers that come of more than one look: Q-values, tiers, steps, timeouts
    test_among_equals.py   everybody at work at the same speed: FedAvg
    test_equalities.py     other settings with which one protocol is another, as whole runs
    test_invariances.py    the order of updates, the origin; robust centres near the mean
    test_convergence.py    least squares with one minimiser, slow and fast clients, drop-out
    test_resume.py         policies of no named protocol go on from saved state
                           (the named ones: tests/test_resume_state.py)
    test_walk_through.py   docs/walk.md's new protocol, added to a copy of the house

Recorded outputs of a public reference exist for Oort's selector (tests/fixtures/oort.json, compared
in tests/select/test_oort.py). Of FedBuff's weights we have no such recording: its numbers here are
worked out from Algorithm 1 of its paper.
"""
