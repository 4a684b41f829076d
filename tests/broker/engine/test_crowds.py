"""Members of a group that come all at once."""

from __future__ import annotations

from penstock.transport import messages as m
from support.engine import Rig


def test_what_is_asked_back_before_its_owner_heard_of_it_can_be_released():
    rig = Rig(handover_s=60.0)
    topic = rig.topic(partitions=4)
    requests = [rig.next_request() for _ in range(3)]
    for request, member in zip(requests, "abc", strict=True):
        rig.send(m.Join(request, topic, "g", member, "push", m.EARLIEST, [], 60_000, 1 << 20, 1 << 20))
    rig.turn()
    joined = [rig.answers(request)[0] for request in requests]
    for session in joined:
        known = {assignment.partition for assignment in session.assignments}
        for message in rig.told(session.session):
            known.update(assignment.partition for assignment in getattr(message, "assignments", ()))
            released = [partition for partition in getattr(message, "revoked", ()) if partition in known]
            if released:
                rig.send(m.Release(session.session, released))
    rig.turn()
    shares = [sorted(rig.assigned(session)) for session in joined]
    assert sorted(partition for share in shares for partition in share) == [0, 1, 2, 3]
    assert all(shares)
