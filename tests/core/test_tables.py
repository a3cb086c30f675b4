"""Tables are read with fields as attributes, compiled and interpreted alike."""

import numpy as np
import pytest

from passcal.core import tables

TABLES = {name: kind for name, kind in vars(tables).items() if isinstance(kind, np.dtype) and kind.names}


@pytest.mark.parametrize("name", TABLES)
def test_no_field_hides_behind_an_attribute_of_numpy(name: str):
    """In interpreted mode a field called `size` could be written and never read."""
    assert not [field for field in TABLES[name].names if hasattr(np.record, field)]
