"""Find what a problem calls the entry point among the names that a program defined."""

from typing import Any


def entry_point(namespace: "dict[str, Any]", path: str) -> Any:
    """`f`: the function, or else the method of a fresh Solution; `Solution.f`: that method; `A.B.f` likewise."""
    owner, _, name = path.rpartition(".")
    if not owner:
        if name not in namespace and "Solution" in namespace:
            return getattr(namespace["Solution"](), name)
        if name not in namespace:
            raise NameError(f"no function {name}")
        return namespace[name]
    first, *rest = owner.split(".")
    scope = namespace[first]
    for part in rest:
        scope = getattr(scope, part)
    return getattr(scope(), name)
