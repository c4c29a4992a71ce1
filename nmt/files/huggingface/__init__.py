"""Models of HuggingFace's MarianMT from Marian's, and back."""

from nmt.files.huggingface.checkpoint import MarianModel as MarianModel
from nmt.files.huggingface.checkpoint import TorchCheckpoint as TorchCheckpoint
from nmt.files.huggingface.checkpoint import from_huggingface as from_huggingface
from nmt.files.huggingface.checkpoint import to_huggingface as to_huggingface
from nmt.files.huggingface.configuration import ConversionError as ConversionError
from nmt.files.huggingface.folders import export_huggingface as export_huggingface
from nmt.files.huggingface.folders import import_huggingface as import_huggingface
