"""What the core raises when its surroundings break their contract. Pure.

Idea: a message that Raft expects to be lost, late or refused is never an error. `Broken` means that the storage or a
peer contradicts what the core knows: a committed entry is missing or differs, an index is out of range. Going on could
falsify committed data, so the surroundings close this replica and open it anew.

It is not of the tree under `penstock.Error`: no client ever sees it, and the core imports nothing of ours.
"""

from __future__ import annotations


class Broken(AssertionError):
    """The log, a peer or a caller contradicts what the core knows."""


class EntriesLost(Broken):
    """An entry is committed that this log had acknowledged, as the leader says, and does not hold: it has lost it."""


class Unfit(ValueError):
    """A change that the current configuration cannot take; the message says why."""
