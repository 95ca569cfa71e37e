"""Grammars of replies: GBNF, or a JSON schema turned into it, as a native sampler that rejects what does not fit."""

from __future__ import annotations

import json
from typing import Any, Final

import llama_cpp

from localspec.errors import UsageError
from localspec.llama import log
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams

_MAX_GRAMMAR_BYTES: Final = 1 << 20


def grammar_sampler(model: Model, params: SamplingParams) -> Any:
    """The native sampler of the request's grammar, the caller's to free; None where the request has none.

    Raises:
        UsageError: the grammar or JSON schema is not valid.
    """
    source = params.grammar if params.json_schema is None else json_schema_grammar(params.json_schema)
    if source is None:
        return None
    if len(source) > _MAX_GRAMMAR_BYTES:
        raise UsageError(f"The grammar has {len(source)} characters; at most {_MAX_GRAMMAR_BYTES} are read.")
    if "\0" in source:
        raise UsageError("The grammar contains a NUL character.", hint="Write it as \\x00.")
    if not source.strip():
        raise UsageError("The grammar is empty.", hint="Leave it out, or write a rule named root.")
    # The parser explains itself on stderr, not in the log.
    with log.captured_errors() as errors, log.captured_stderr() as stderr:
        handle = llama_cpp.llama_sampler_init_grammar(model.vocab_handle, source.encode("utf-8", "replace"), b"root")
    if not handle:
        first_line = next((line for line in stderr if line.strip()), "").removeprefix("parse: error parsing grammar: ")
        raise UsageError(
            f"The grammar is not valid: {first_line or '; '.join(errors) or 'llama.cpp gave no reason'}.",
            hint="GBNF needs a rule named root; see grammars/README.md of llama.cpp.",
        )
    return handle


def json_schema_grammar(schema: str) -> str:
    """The GBNF grammar of the JSON texts that a schema allows, by llama-cpp-python's converter.

    Raises:
        UsageError: the schema is not JSON, or uses something that the converter does not know.
    """
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The JSON schema is not JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"The JSON schema is {type(parsed).__name__}; it must be an object.")
    try:
        return str(json_schema_to_gbnf(schema))
    except Exception as error:
        raise UsageError(
            f"The JSON schema cannot be turned into a grammar: {str(error) or type(error).__name__}.",
            hint="Use types, properties, enum, const, items, anyOf, oneOf and local $ref.",
        ) from error
