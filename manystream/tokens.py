"""What programs that send and read token ids need beside `ms.Tokens` and `ms.Turns`."""

from .providers.generate.template import chat_template as chat_template
from .providers.model.tokens import WeightSpan as WeightSpan
