from __future__ import annotations

import autoclave.algorithms


def test_every_public_name_is_there_and_listed_in_order():
    assert autoclave.algorithms.__all__ == sorted(autoclave.algorithms.__all__)
    assert all(hasattr(autoclave.algorithms, name) for name in autoclave.algorithms.__all__)
