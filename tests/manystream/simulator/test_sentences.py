"""The simulator's readable text: about the question, of exactly the length asked for, in whole sentences."""

from __future__ import annotations

import random

import pytest

from manystream.simulator import Knobs, Prompt, write_scenario
from manystream.simulator.sentences import DEFAULT_TOPIC, topic_of, write_text

TOPICS = {
    "Tell me of rivers.": "rivers",
    "And of bridges?": "bridges",
    "Explain my invoice, please.": "your invoice, please",
    "What is the weather in Rome?": "the weather in Rome",
    "Please name three rivers of Poland.": "three rivers of Poland",
    "pelican": "pelican",
    "Why is the sky blue?": 'the question "Why is the sky blue?"',
    "Why is the sky blue": 'the question "Why is the sky blue"',
    "I moved to another city. Now what?": 'the message "I moved to another city."',
    "Summarise this: long text": "this: long text",
    "東京の天気は？": "東京の天気は",
    "Hello!": DEFAULT_TOPIC,
    "": DEFAULT_TOPIC,
    " \n ": DEFAULT_TOPIC,
    "simulate: events=4": DEFAULT_TOPIC,
    '{"simulate": {"events": 4}}': DEFAULT_TOPIC,
}


@pytest.mark.parametrize("question", TOPICS)
def test_the_topic_of_a_question(question: str) -> None:
    assert topic_of(question) == TOPICS[question]


@pytest.mark.parametrize("words", ["hello", "hi", "hey", "good morning", "good evening", "good day"])
def test_a_greeting_has_no_topic(words: str) -> None:
    assert topic_of(f"{words}, my friend in the old town") == "streamed answers"


def test_a_topic_is_named_as_the_reader_knows_it() -> None:
    words = {"my": "your", "our": "your", "your": "my", "me": "you", "I": "you", "them": "them"}
    assert {word: topic_of(f"Explain {word}.") for word in words} == words


def test_a_long_message_is_shortened_to_a_topic() -> None:
    assert topic_of("word " * 100_000) == 'the message "' + " ".join(["word"] * 12) + '…"'
    assert len(topic_of("x" * 1_000_000)) <= 400


def test_an_answer_is_about_the_question_in_whole_sentences() -> None:
    answer = write_scenario(Prompt(model="m", text="Tell me of rivers."), Knobs(kind="thinking", seed=1))
    assert answer.thinking == "This thought comes from the simulator."
    assert answer.text.startswith("This is a simulated answer about rivers. ")
    assert answer.text.endswith(".")
    assert answer.text.isascii()


@pytest.mark.parametrize("kind", ["answer", "thought"])
@pytest.mark.parametrize("question", ["Tell me of rivers.", "Why is the sky blue?", "word " * 50, "Hello"])
def test_a_text_has_any_length_and_ends_with_its_sentence(kind: str, question: str) -> None:
    for count in (*range(80), 1000):
        pieces = write_text(question, count, random.Random(count), kind)
        assert len(pieces) == count
        text = "".join(pieces)
        assert text.split() == [piece.strip() for piece in pieces]
        assert not count or text.rstrip('"')[-1] in ".?"


def test_a_long_text_has_paragraphs_and_repeats_no_neighbour() -> None:
    paragraphs = "".join(write_text("Tell me of rivers.", 600, random.Random(3))).split("\n\n")
    assert len(paragraphs) > 10
    for paragraph in paragraphs:
        sentences = paragraph.split(". ")
        assert len(set(sentences)) == len(sentences)
