"""Named protocols, each one composition of who, when, how (and whom to trust).

The keyword parameters are the protocol's settings; in a config file they stand in the table
`[protocols.NAME]`. `concurrency` (C) is how many clients may run at once.
"""

from __future__ import annotations

from pisces.protocols.buffered import ca2fl as ca2fl
from pisces.protocols.buffered import fadas as fadas
from pisces.protocols.buffered import fedbuff as fedbuff
from pisces.protocols.buffered import fedcompass as fedcompass
from pisces.protocols.buffered import papaya as papaya
from pisces.protocols.buffered import port as port
from pisces.protocols.buffered import tea_fed as tea_fed
from pisces.protocols.mixing import aso_fed as aso_fed
from pisces.protocols.mixing import fedasync as fedasync
from pisces.protocols.mixing import hysync as hysync
from pisces.protocols.pisces import pisces as pisces
from pisces.protocols.pisces import pisces_artifact as pisces_artifact
from pisces.protocols.pisces import pisces_paper as pisces_paper
from pisces.protocols.pisces import pisces_without_adaptive_pace as pisces_without_adaptive_pace
from pisces.protocols.pisces import pisces_without_guard as pisces_without_guard
from pisces.protocols.pisces import pisces_without_selection as pisces_without_selection
from pisces.protocols.pisces import pisces_without_staleness as pisces_without_staleness
from pisces.protocols.synchronous import autofl as autofl
from pisces.protocols.synchronous import fedar as fedar
from pisces.protocols.synchronous import fedavg as fedavg
from pisces.protocols.synchronous import fedcs as fedcs
from pisces.protocols.synchronous import oort as oort
from pisces.protocols.synchronous import tifl as tifl
