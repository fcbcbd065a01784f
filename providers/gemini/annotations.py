"""Members of a part that describe its content and are not content themselves.

They stay with the block of the content, in its `state`. A user gives most of them, and they are sent back.
"""

from __future__ import annotations

TEXT_ANNOTATIONS = ("partMetadata", "speechMetadata")
"""Members beside a text that are sent with it: the caller's own, and who speaks it in which style."""

MEDIA_ANNOTATIONS = (
    "partMetadata", "videoMetadata", "mediaResolution", "mediaProcessing", "documentMetadata", "spreadsheetMetadata",
    "audioMetadata",
)  # fmt: skip
"""Members beside a file that are sent with it: the clip of a film, the pages of a document, the resolution."""

ANNOTATIONS = frozenset({"thought", "thoughtSignature", "audioTranscription", *TEXT_ANNOTATIONS, *MEDIA_ANNOTATIONS})
"""All of them. Any other member of a part is content."""
