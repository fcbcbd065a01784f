"""The options of `manystream batch` for the requests of all lines, such as `--system` and `--schema`."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
from pathlib import Path
from typing import cast

from .. import InvalidRequestError
from ..batch.lines import CommonOptions, Prompt, read_prompt
from ..providers.json.json_types import AnswerType
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object
from ..providers.model.structured import is_schema, schema_of
from ..transport.files import read_file
from .options import add_number
from .output.errors import CommandError


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--system", metavar="TEXT", help="the system prompt of all lines")
    add_number(parser, "--max-tokens", kind=int, metavar="N", help="the longest answer of a line, in tokens")
    add("--temperature", type=float, metavar="T", help="the temperature of all lines")
    add(
        "--schema",
        metavar="FILE|MODULE:CLASS",
        help="a JSON Schema, or a class such as a pydantic model, that the answers match; they have it as `parsed`",
    )

    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument(
        "--prompt", metavar="TEMPLATE", help="the prompt of all rows, with their columns, such as 'Translate: {text}'"
    )
    prompt.add_argument("--prompt-field", metavar="NAME", help="the column that is the prompt of its row")


def read_request_options(arguments: argparse.Namespace) -> CommonOptions:
    """Return the options that were given. Raises `CommandError`."""
    options: CommonOptions = {}
    if arguments.system is not None:
        options["system"] = arguments.system
    if arguments.max_tokens is not None:
        options["max_output_tokens"] = arguments.max_tokens
    if arguments.temperature is not None:
        if not 0 <= arguments.temperature < math.inf:
            raise CommandError(f"--temperature must be a number from 0, not {arguments.temperature:g}", status=2)
        options["temperature"] = arguments.temperature
    if arguments.prompt_field is not None:
        options["prompt"] = Prompt((("", arguments.prompt_field),))
    if arguments.prompt is not None:
        try:
            options["prompt"] = read_prompt(arguments.prompt)
        except ValueError as error:
            raise CommandError(f"--prompt {arguments.prompt!r}: {error}", status=2) from None
    if arguments.schema is not None:
        options["response_schema"] = _read_schema(arguments.schema)
    return options


def _read_schema(given: str) -> JSONObject | AnswerType:
    """Return the schema of a file, or a type of a module. Raises `CommandError`."""
    path = Path(given)
    module, colon, name = given.partition(":")
    if colon and not path.exists() and path.suffix != ".json":
        return _read_type(given, module, name)
    try:
        return loads_object(read_file(path))
    except OSError as error:
        more = "" if colon or path.suffix else "; a class is written as MODULE:CLASS"
        raise CommandError(f"--schema: cannot read {given}: {error.strerror}{more}", status=2) from None
    except (MalformedJSONError, ValueError) as error:
        raise CommandError(f"--schema: {given!r} holds no JSON Schema: {error}", status=2) from None


def _read_type(given: str, module: str, name: str) -> AnswerType:
    folder = os.getcwd()
    if folder not in sys.path:  # as for `python -m`: the module is usually beside the prompts
        sys.path.insert(0, folder)
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module is the user's own code
        raise CommandError(f"--schema: cannot import {given}: {type(error).__name__}: {error}", status=2) from None
    if isinstance(found, dict) or not is_schema(found):
        raise CommandError(f"--schema: {given} is no class with a JSON Schema, such as a pydantic model", status=2)
    kind = cast("AnswerType", found)
    try:
        schema_of(kind)
    except InvalidRequestError as error:
        raise CommandError(f"--schema: {error}", status=2) from None
    return kind
