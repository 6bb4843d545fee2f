"""Adapters say what the arguments of a model's blocks mean as a `TokenGrid`.

They are picked by the path of the model's class, so no host library is ever imported here.
"""

from tokenselect.adapters.adapter import (
    Adapter,
    Arguments,
    Removable,
    begin_context,
    change_arguments,
    context_of,
)
from tokenselect.adapters.lookup import find_adapter, is_supported, supported_models
