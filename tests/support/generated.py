"""Values of any type that msgspec knows, made by hypothesis: whole messages and effects, within their bounds."""

from __future__ import annotations

from typing import Any

import msgspec.inspect as shape
from hypothesis import strategies as st

INT64 = 2**63


def values(type_: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    return _of(shape.type_info(type_))


def plain(value: Any) -> Any:
    """A value as msgpack has it: a struct is its tag, if it has one, and its fields; a tuple is a list."""
    if isinstance(value, shape.msgspec.Struct):
        tag = value.__struct_config__.tag
        return [*([] if tag is None else [tag]), *(plain(getattr(value, name)) for name in value.__struct_fields__)]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def _of(kind: shape.Type) -> st.SearchStrategy[Any]:
    match kind:
        case shape.IntType():
            unsigned = kind.ge is not None and kind.le is None
            low = -INT64 if kind.ge is None else kind.ge
            return st.integers(low, 2 * INT64 - 1 if unsigned else INT64 - 1 if kind.le is None else kind.le)
        case shape.BytesType():
            return st.binary(min_size=kind.min_length or 0, max_size=min(kind.max_length or 16, 16))
        case shape.StrType():
            return st.text(max_size=10) if kind.pattern is None else st.from_regex(kind.pattern)
        case shape.FloatType():
            return st.floats(allow_nan=False)
        case shape.BoolType():
            return st.booleans()
        case shape.NoneType():
            return st.none()
        case shape.LiteralType():
            return st.sampled_from(kind.values)
        case shape.AnyType():
            return st.none() | st.booleans() | st.integers(-INT64, INT64 - 1) | st.text(max_size=5)
        case shape.ListType() | shape.VarTupleType():
            return st.lists(_of(kind.item_type), min_size=kind.min_length or 0, max_size=2)
        case shape.TupleType():
            return st.tuples(*map(_of, kind.item_types))
        case shape.DictType():
            return st.dictionaries(_of(kind.key_type), _of(kind.value_type), max_size=2)
        case shape.UnionType():
            return st.one_of(*map(_of, kind.types))
        case shape.StructType():
            return st.builds(kind.cls, **{field.name: _of(field.type) for field in kind.fields})
        case shape.Metadata():
            return _of(kind.type)
    raise AssertionError(f"no values of {kind} are made yet")
