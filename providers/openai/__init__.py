"""OpenAI's two wire dialects, Chat Completions and Responses, and what they share: effort words, schemas and limits.

`chat/` is also the dialect of nearly all compatible servers. Where they depart from it, `Quirks` says so. `responses/`
finds the item that an event is about by its index, its id or its kind (`output.py`), since gateways leave out some of
them; the item delivers its content once, however it arrives (`items.py`). `legacy/` converts requests of the older flat
form; nothing else here uses it.
"""
