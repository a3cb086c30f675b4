"""A pointer to a tuple of tables, so that compiled functions pass one word instead of every array's seven.

`handle(state)` inside an entry gives what the other kernel functions take as `state`; fields read as on the tuple. Without it each call
would copy two hundred words, and each function would be compiled with as many arguments.
"""

from typing import Any

from passcal.core.compiled import INTERPRETED

__all__ = ["handle"]

if INTERPRETED:

    def handle(state: Any) -> Any:
        """The tuple itself."""
        return state

else:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.imputils import lower_getattr_generic
    from numba.core.typing.templates import AttributeTemplate, infer_getattr
    from numba.extending import intrinsic, models, register_model

    class Handle(types.Type):
        """The type of a pointer to a named tuple."""

        def __init__(self, pointee: Any) -> None:
            self.pointee = pointee
            super().__init__(name=f"Handle({pointee})")

    @register_model(Handle)
    class HandleModel(models.PrimitiveModel):
        """In machine code it is just that pointer."""

        def __init__(self, manager: Any, kind: Any) -> None:
            struct = manager.lookup(kind.pointee).get_value_type()
            super().__init__(manager, kind, ir.PointerType(struct))

    @infer_getattr
    class HandleAttribute(AttributeTemplate):
        """Its attributes are the tuple's fields."""

        key = Handle

        def generic_resolve(self, kind: Any, name: str) -> Any:
            """The type of a field, or None."""
            if name in kind.pointee.fields:
                return kind.pointee.types[kind.pointee.fields.index(name)]
            return None

    @lower_getattr_generic(Handle)
    def read_field(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
        """Borrow a field: the caller of the entry keeps the arrays alive."""
        at, word = kind.pointee.fields.index(name), ir.IntType(32)
        struct, field = context.get_value_type(kind.pointee), context.get_value_type(kind.pointee.types[at])
        place = builder.gep(value, [word(0), word(at)], inbounds=True, source_etype=struct)
        return builder.load(place, typ=field)

    @intrinsic
    def handle(typing: Any, state: Any) -> Any:
        """A pointer to the tuple, good until the calling function returns."""

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return cgutils.alloca_once_value(builder, arguments[0])

        return Handle(state)(state), build
