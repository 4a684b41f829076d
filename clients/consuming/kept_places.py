"""Places of a lost session, until the next one goes on from there.

Idea: an application does not notice that its session was lost and joined again, as long as its partitions are where it
left them: no other member was given them, and the group's cursor stands where it stood, or where a commit of our own
moves it. Then reading goes on at the application's place, which is behind the cursor or, after a seek, anywhere.
Otherwise a partition begins at its cursor, and what was handed out of it and not committed is read again.

Contract: a place is used by the first session that has its partition. A reader without a group tells the broker its
places, and goes on there. Must not know: how a session is joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ...broker.errors import Fenced
from ...transport.consumer_session import NOT_COMMITTED, ConsumerSession, PartitionView
from ...transport.messages import Position


class KeptPlace(Struct):
    """`cursor`: of the group, as last heard. `sought`: the position is that of a seek, and was not committed since."""

    cursor: int
    position: int
    sought: bool

    @property
    def uncommitted(self) -> bool:
        """Whether a commit would move the cursor: behind what was handed out, or to the place of a seek."""
        return self.position > self.cursor or (self.sought and self.position < self.cursor)


class KeptPlaces:
    """See the module. `lost` are partitions that were read on elsewhere, in which a place was not committed here."""

    def __init__(self, group: str) -> None:
        self.lost: set[int] = set()
        self._group = group
        self._places: dict[int, KeptPlace] = {}
        self._gone: set[int] = set()  # of these, the partitions that another member was given, as far as is known
        self._asked: dict[int, list[int]] = {}  # by commits, in order, whose answers may be lost with their session

    @property
    def positions(self) -> dict[int, int]:
        """The application's places."""
        return {partition: place.position for partition, place in self._places.items()}

    @property
    def held(self) -> dict[int, int]:
        """The same without partitions that another member was given, as far as is known."""
        return {partition: place for partition, place in sorted(self.positions.items()) if partition not in self._gone}

    @property
    def uncommitted(self) -> bool:
        """Whether the application is anywhere where no commit has put the cursor."""
        return any(place.uncommitted for place in self._places.values())

    def keep(self, views: Iterable[PartitionView]) -> None:
        """These partitions are lost, mostly with their session."""
        for view in views:
            self._places[view.partition] = KeptPlace(view.cursor, view.position, view.committed == NOT_COMMITTED)

    def give_up(self, views: Sequence[PartitionView]) -> None:
        """These went to another member, and have come back since."""
        self.keep(views)
        self._gone.update(view.partition for view in views)

    def move(self, positions: dict[int, int]) -> None:
        """The application is elsewhere in these partitions, if they are kept."""
        for partition in self._places.keys() & positions:
            self._places[partition].position = positions[partition]

    def ask(self, positions: Iterable[Position]) -> None:
        """A commit is asked for."""
        for position in positions:
            self._asked.setdefault(position.partition, []).append(position.offset)

    def committed(self, session: ConsumerSession, positions: Sequence[Position]) -> None:
        """It was made, perhaps behind the end of its session, and so is what was asked for before it."""
        session.committed(positions)
        for position in positions:
            view, asked = session.partitions.get(position.partition), self._asked.get(position.partition, [])
            is_present = view is not None and view.epoch == position.epoch  # else it was before a seek
            if is_present and position.offset in asked:
                del asked[: asked.index(position.offset) + 1]
            place = self._places.get(position.partition)
            if place is not None:
                place.cursor, place.sought = position.offset, place.sought and not is_present

    def resume(self, session: ConsumerSession, *, may_go_on: bool) -> tuple[list[int], list[int]]:
        """Move the views of a new session, or of new partitions, to the places that are kept.

        Returns the partitions that the broker is to deliver from before the cursor, and those that begin at it.

        `may_go_on`: False where the broker may have lost what was read here.
        """
        sought, anew = list[int](), list[int]()
        for partition, view in session.partitions.items():
            place = self._places.pop(partition, None)
            if place is None or not self._group:
                continue
            known = place.cursor, *self._asked.pop(partition, ())
            if not may_go_on or partition in self._gone or view.cursor not in known:
                if may_go_on and place.uncommitted:
                    self.lost.add(partition)
                elif place.position == view.position:
                    continue
                anew.append(partition)
            elif place.position > view.position:
                view.position = view.fetched = place.position
            elif place.sought and place.position < view.position:
                view.position = view.fetched = place.position
                view.committed = NOT_COMMITTED
                sought.append(partition)
        if self._group and not may_go_on:
            self._places.clear()
        self._gone = set(self._places)
        return sought, anew

    def take_lost(self, among: Iterable[int] | None = None) -> list[int]:
        """The partitions of which something handed out is read again, and where all are asked for, those that are not
        here; they count as told."""
        if among is not None:
            lost = self.lost.intersection(among)
        else:
            lost = self.lost.union(number for number, place in self._places.items() if place.uncommitted)
            self._places = {}
        self.lost -= lost
        return sorted(lost)


def read_on(partitions: list[int], topic: str, group: str) -> Fenced:
    """The error of a commit that comes too late for some partitions."""
    return Fenced(
        f"partitions {partitions} of topic {topic} went to other members of group {group}, or their cursors were moved "
        "before this commit: what was handed out of them since the last one is read again"
    )
