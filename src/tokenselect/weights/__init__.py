"""Weights from elsewhere: read, recognised by their content, fitted to a model.

Pure renamings live beside the backbones they are for; here they are chosen and used.
"""

from tokenselect.weights.files import find_checkpoint, read_metadata, read_weights
from tokenselect.weights.load import LoadedWeights, MismatchError, load_weights
from tokenselect.weights.public import PUBLIC, PublicFile, fetch_public, public_weights
