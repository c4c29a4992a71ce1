"""Models from one format to another: Marian's files among themselves, HuggingFace's MarianMT both ways."""

from nmt.conversion.checkpoint import MarianModel as MarianModel
from nmt.conversion.checkpoint import TorchCheckpoint as TorchCheckpoint
from nmt.conversion.checkpoint import from_huggingface as from_huggingface
from nmt.conversion.checkpoint import to_huggingface as to_huggingface
from nmt.conversion.configuration import ConversionError as ConversionError
from nmt.conversion.folders import export_huggingface as export_huggingface
from nmt.conversion.folders import import_huggingface as import_huggingface
from nmt.conversion.model_files import convert_model as convert_model
