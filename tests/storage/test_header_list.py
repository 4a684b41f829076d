"""Headers as lists and maps."""

from __future__ import annotations

from penstock.storage.header_list import HeaderList, of_pairs, pairs_of, with_more


def test_lists_are_equal_by_their_pairs_and_to_maps_by_what_they_have_of_one() -> None:
    first, second = HeaderList([("a", b"1"), ("a", b"2")]), HeaderList([("a", None), ("a", b"2")])
    assert first == HeaderList([("a", b"1"), ("a", b"2")])
    assert first != second
    assert first == second.copy() == {"a": b"2"}
    assert repr(second) == "HeaderList([('a', None), ('a', b'2')])"


def test_what_fits_a_map_is_one_in_its_order() -> None:
    found = of_pairs([("b", b"1"), ("a", b"")])
    assert (type(found), list(found.items()), pairs_of(found)) == (
        dict,
        [("b", b"1"), ("a", b"")],
        (("b", b"1"), ("a", b"")),
    )
    assert type(of_pairs([("a", None)])) is HeaderList


def test_more_headers_go_in_place_of_those_of_their_names() -> None:
    listed = with_more(HeaderList([("a", b"1"), ("b", None), ("a", b"2")]), {"a": b"x", "c": b"y"})
    assert pairs_of(listed) == (("b", None), ("a", b"x"), ("c", b"y"))
    assert with_more({"a": b"1", "b": b"2"}, {"a": b"x"}) == {"a": b"x", "b": b"2"}
