"""How far runs are: on a terminal, in a notebook, or in lines."""
