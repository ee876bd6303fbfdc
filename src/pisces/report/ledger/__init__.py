"""A run's log in columns, growing with it: what live pages and reports are made from.

    ledger = Ledger(folder)
    while not ledger.is_whole:
        ledger.read(most_s=0.1)
    overview(ledger), client_rows(ledger, order="score"), client_story(ledger, 7)

Only the run folder is read, never the run: nothing is locked, written or waited for.
"""

from pisces.report.ledger.book import Ledger
from pisces.report.ledger.overview import STATES, Overview, State, overview
from pisces.report.ledger.rows import STATUSES, ClientRow, ClientRows, client_rows
from pisces.report.ledger.story import FATES, ClientStory, Decision, TaskRow, client_story

__all__ = [
    "FATES",
    "STATES",
    "STATUSES",
    "ClientRow",
    "ClientRows",
    "ClientStory",
    "Decision",
    "Ledger",
    "Overview",
    "State",
    "TaskRow",
    "client_rows",
    "client_story",
    "overview",
]
