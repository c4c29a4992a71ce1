"""Exceptions: each says what was expected, what was got, and where."""

from __future__ import annotations


class MGraphError(Exception):
    """The root of all errors that mgraph, layers and nmt raise for a user's mistake."""


class GraphError(MGraphError, RuntimeError):
    """A graph was used out of order: a value read too early, two tops, two graphs mixed."""


class ShapeError(MGraphError, ValueError):
    """The shapes of an operator's children, or the shape of a value for a node, do not fit."""


class ElementTypeError(MGraphError, TypeError):
    """Children of an operator differ in element type, or a name is not an element type."""


class ArgumentError(MGraphError, TypeError, ValueError):
    """An argument, or a field of an operation, has the wrong kind or an impossible value."""


class GradientError(MGraphError, ValueError):
    """A hand-written backward rule returned something that is not a gradient of its children."""


class WrongGradientError(GradientError, AssertionError):
    """``assert_gradients`` found a wrong gradient; holds the table of witnesses."""


class NonFiniteError(MGraphError, ArithmeticError):
    """A value or a gradient holds NaN or infinity while ``set_throw_nan`` watches for them."""


class ParameterError(MGraphError, KeyError):
    """A parameter is missing, unexpected, or asked for with another shape."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DeviceError(MGraphError, RuntimeError):
    """This machine, or this JAX, does not have the requested device."""


class OutOfMemoryError(MGraphError, MemoryError):
    """A program needs more memory than is left on its device."""


class ModelFileError(MGraphError, ValueError):
    """A model file is damaged, has another format, or claims more data than it holds."""


class WordVectorsError(MGraphError, ValueError):
    """A file of word vectors is not in word2vec's text format, or does not match the model."""


def told(error: BaseException) -> str:
    """An exception in one line, with its class unless it is an ``MGraphError``."""
    kinds = () if isinstance(error, MGraphError) else (type(error).__name__,)
    return ": ".join(filter(None, (*kinds, first_line(error))))


def first_line(error: BaseException) -> str:
    """The first line of an exception's message; messages of other libraries may have many lines."""
    return str(error).strip().partition("\n")[0]
