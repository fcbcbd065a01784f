"""Turns SGLang's answers into the form of the other two: a chunk with choices, each with what is new."""

from __future__ import annotations

from collections.abc import Sequence

from ..json.json_values import JSON, JSONObject, integer, items, mapping, string

FINISH, META, OUTPUT_IDS, COUNTED = "finish_reason", "meta_info", "output_ids", "counted"


class Seen:
    """How much of one choice has arrived, in a wire whose events may repeat all of it."""

    __slots__ = ("characters", "count", "ids", "logprobs")

    def __init__(self) -> None:
        self.characters: int = 0
        self.count: int = 0
        self.ids: int = 0
        self.logprobs: int = 0


class SGLangWire:
    """The events of one answer. Each repeats the whole answer so far, or has what is new (`incremental`): a list is
    whole if it is as long as the number of tokens that the event names, and something came before it.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def chunk(self, value: JSON) -> JSONObject:
        """Return an event, a whole answer, or the list of a whole answer's choices, as a chunk with choices."""
        answers = (
            [value]
            if type(value) is dict
            else [item for item in value if type(item) is dict]
            if (type(value) is list)
            else []
        )
        choices: list[JSON] = []
        chunk: JSONObject = {"choices": choices}
        for position, answer in enumerate(answers):
            index = integer(answer, "index")
            choices.append(self._choice(answer, position if index is None else index))
            meta = mapping(answer, META)
            chunk.setdefault("id", string(meta, "id"))
            if meta:
                prompt = integer(meta, "prompt_tokens")
                chunk["usage"] = {
                    "prompt_tokens": prompt,
                    "completion_tokens": sum(seen.count for seen in self._seen.values()),
                    "prompt_tokens_details": {"cached_tokens": meta.get("cached_tokens")},
                }
        return chunk

    def _choice(self, answer: JSONObject, index: int) -> JSONObject:
        meta = mapping(answer, META)
        seen = self._seen.setdefault(index, Seen())
        count = integer(meta, "completion_tokens")
        seen.count = count or 0
        pairs = items(meta, "output_token_logprobs")
        has_ids = type(answer.get(OUTPUT_IDS)) is list
        ids: Sequence[JSON] = items(answer, OUTPUT_IDS) if has_ids else [_second(pair) for pair in pairs]
        new_ids, repeats = _new(ids, seen.ids, count)
        new_pairs, _ = _new(pairs, seen.logprobs, count)
        text = string(answer, "text") or ""
        new_text = text[seen.characters :] if repeats else text
        seen.ids += len(new_ids)
        seen.logprobs += len(new_pairs)
        seen.characters += len(new_text)
        top = items(meta, "output_top_logprobs")
        finish = meta.get(FINISH)
        reason = mapping(meta, FINISH)
        choice: JSONObject = {
            "index": index,
            "text": new_text,
            "token_ids": [*new_ids] if has_ids or pairs else None,
            "logprobs": {"token_logprobs": [_first(pair) for pair in new_pairs]} if new_pairs else None,
            FINISH: string(reason, "type") if reason else finish,
            "weight_versions": meta.get("weight_versions"),
            "weight_version": meta.get("weight_version"),
        }
        counted: JSONObject = {"completion_tokens": count}
        if repeats and finish:
            counted[OUTPUT_IDS] = [*ids]
        choice[COUNTED] = counted
        if reason:
            choice["stop_reason"] = reason.get("matched")
            choice["finish_detail"] = reason
        if top:
            choice["top_logprobs"] = [*_new(top, seen.logprobs - len(new_pairs), count)[0]]
        for name in ("hidden_states", "routed_experts", "input_token_logprobs"):
            if meta.get(name):
                choice[name] = meta[name]
        return choice


def _new(values: Sequence[JSON], seen: int, count: int | None) -> tuple[Sequence[JSON], bool]:
    """Return the values that are new, and whether the event repeats those before them.

    seen: the number of values that came. count: the number of tokens so far, if the event names it.
    """
    repeats = len(values) >= seen if count is None else len(values) > count - seen
    return (values[seen:], True) if repeats else (values, False)


def _first(pair: JSON) -> JSON:
    return pair[0] if type(pair) is list and pair else None


def _second(pair: JSON) -> JSON:
    return pair[1] if type(pair) is list and len(pair) > 1 else None
