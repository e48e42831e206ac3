"""All that a party ever tells the server about why it does not go on.

Which of several reasons a party had for not contributing is not told: it may depend on its
records. The party's own log names the place in the code.
"""

from __future__ import annotations

ANOTHER_SPECIFICATION = "another specification"
ANSWERED_BEFORE = "this round was answered before"
OUT_OF_ORDER = "a message out of order"
UNKNOWN_MESSAGE = "a message of an unknown kind"
WRONG_TERMS = "terms of the sum other than agreed on"
WRONG_PARTIES = "a list of parties that is not as agreed on"
TOO_FEW_PARTIES = "too few parties for this sum"
NO_CONTRIBUTION = "this party could not contribute"
NOT_HARDENED = "the secure sum of this party is not in order"

REFUSALS = (
    ANOTHER_SPECIFICATION,
    ANSWERED_BEFORE,
    OUT_OF_ORDER,
    UNKNOWN_MESSAGE,
    WRONG_TERMS,
    WRONG_PARTIES,
    TOO_FEW_PARTIES,
    NO_CONTRIBUTION,
    NOT_HARDENED,
)
