"""Where the pairs come from: reading and writing every format, splitting, describing."""

from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.text.texts import Texts

__all__ = ["Dataset", "Texts", "read"]
