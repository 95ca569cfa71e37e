"""The grammar of a request, its own or one made of JSON schemas, as native samplers that reject what does not fit."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import llama_cpp

from localspec.errors import UsageError
from localspec.llama import grammar_check, log
from localspec.llama.json_rules import PRIMITIVES
from localspec.llama.model import Model
from localspec.llama.sampling_params import SamplingParams
from localspec.llama.schema_grammar import schema_rules

_MAX_GRAMMAR_BYTES: Final = 1 << 20


def grammar_source(params: SamplingParams) -> str | None:
    """The GBNF of the request's grammar or JSON schema, with the rules of all its schemas; None where it has none.

    Raises:
        UsageError: it is empty, too long or has a NUL; a schema cannot be turned into rules, and the message names it.
    """
    if params.json_schema is not None:
        source = schema_rules("root", params.json_schema, "The JSON schema") + PRIMITIVES
    elif params.grammar is None:
        return None
    elif not params.grammar.strip():
        raise UsageError("The grammar is empty.", hint="Leave it out, or write a rule named root.")
    elif params.grammar_schemas:
        schemas = params.grammar_schemas
        rules = (schema_rules(each.rule, each.schema, f"The JSON schema of {each.owner}") for each in schemas)
        source = "\n".join([params.grammar, *rules, PRIMITIVES])
    else:
        source = params.grammar
    if len(source) > _MAX_GRAMMAR_BYTES:
        raise UsageError(f"The grammar has {len(source)} characters; at most {_MAX_GRAMMAR_BYTES} are read.")
    if "\0" in source:
        raise UsageError("The grammar contains a NUL character.", hint="Write it as \\x00.")
    return source


def grammar_sampler(model: Model, source: str, *, n_skipped_bytes: int | None = None) -> Any:
    """A native sampler of the grammar, the caller's to free.

    With `n_skipped_bytes` it sleeps until the first token is accepted, and sees the bytes of that token after so many.

    Raises:
        UsageError: the grammar is not valid.
    """
    grammar_check.check(source)
    grammar = source.encode("utf-8", "replace")
    # The parser explains itself on stderr, not in the log.
    with log.captured_errors() as errors, log.captured_stderr() as stderr:
        if n_skipped_bytes is None:
            handle = llama_cpp.llama_sampler_init_grammar(model.vocab_handle, grammar, b"root")
        else:
            skipped = f"[\\s\\S]{{{n_skipped_bytes}}}" if n_skipped_bytes else ""
            patterns = (ctypes.c_char_p * 1)(f"{skipped}([\\s\\S])".encode())
            handle = llama_cpp.llama_sampler_init_grammar_lazy_patterns(
                model.vocab_handle, grammar, b"root", patterns, 1, None, 0
            )
    if not handle:
        first_line = next((line for line in stderr if line.strip()), "").removeprefix("parse: error parsing grammar: ")
        raise UsageError(
            f"The grammar is not valid: {first_line or '; '.join(errors) or 'llama.cpp gave no reason'}.",
            hint="GBNF needs a rule named root; see grammars/README.md of llama.cpp.",
        )
    return handle
