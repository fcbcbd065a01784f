"""Google's Gemini dialect (`generateContent`), for the Gemini API and Vertex AI."""

from .dialect import DIALECT as DIALECT
from .errors import parse_error as parse_error
from .response import parse_response as parse_response
