import pickle
import threading
import time

import pytest

from localspec.engine import template_budget
from localspec.engine.chat_template import ChatTemplate
from localspec.engine.requests import Message
from localspec.errors import ChatTemplateError


def rendered(source: str) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render([Message("user", "hi")])


def error_of(source: str) -> ChatTemplateError:
    with pytest.raises(ChatTemplateError) as caught:
        rendered(source)
    assert caught.value.hint
    return pickle.loads(pickle.dumps(caught.value))


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='x') }}",
    "{{ (''|attr('__class__')).x }}",
    "{{ '{0.__class__.__mro__}'.format_map(messages) }}",
    "{% include 'x' %}",
    "{% import 'x' as x %}",
    "{% extends 'x' %}",
    "{{ lipsum(n=5) }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_ways_out_of_the_sandbox_are_closed(source: str) -> None:
    error_of(source)


BIG = "{% set big = 'é' * 3000000 %}"
GROW = "{% set ns = namespace(x=['seed']) %}{% for _ in range(60) %}{% set ns.x = SELF %}{% endfor %}{{ ns.x }}"

FLOODS = [
    "{{ 'a' * 10**10 }}",
    "{{ [0] * 10**10 }}",
    "{{ (1,) * 10**10 }}",
    "{{ 10 ** 10 ** 8 * 10 ** 10000 }}",
    "{{ 10 ** 10000 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%(k)1000000000d' % {'k': 1} }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:>{w}}'.format(1, w=1000000000) }}",
    "{{ ('{0}' * 100000).format('b' * 1000000) }}",
    "{{ ('%(a)s' * 100000) % {'a': 'b' * 1000000} }}",
    "{{ 'a'.center(10**9) }}{{ 'a'.ljust(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ '\t'.expandtabs(10**9) }}",
    "{{ (1).to_bytes(10**9, 'big') }}",
    "{{ 'a\n' | indent(10**9) }}",
    "{{ ('a\n' * 100000) | indent('b' * 399) }}",
    "{{ range(10000) | join('a' * 1000000) }}",
    "{{ ('a' * 1000000).join(range(10000) | map('string')) }}",
    "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
    "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
    "{{ [1] | tojson(indent=10**9) }}",
    "{{ 1.5 | round(10**9, 'ceil') }}",
    "{{ ('9' * 1000000) | int }}",
    "{{ ('9' * 1000000) | float }}",
    "{{ range(10**9) }}",
    "{{ range(9999) | map('default', []) | sum(start=[]) }}",
    "{{ strftime_now('%Y' * 100000) }}",
    BIG + "{{ big.strip(big) }}",
    BIG + "{{ big ~ big }}",
    BIG + "{{ big + big }}",
    BIG + "{{ [big, big] }}",
    BIG + "{{ big | list | length }}",
    BIG + "{{ big.split('') }}{{ range(9999) | map('replace', '1', big) | join }}",
    BIG + "{{ messages * 9999 | length }}{{ ([none] * 9999) | map('default', big, true) | join }}",
    "{% set b = '<' * 4500000 %}{{ b | e }}",
    "{% set j = joiner('x' * 9000000) %}{% for _ in range(100) %}{{ j() }}{% endfor %}",
    GROW.replace("SELF", "[ns.x, ns.x]"),
    GROW.replace("SELF", "ns.x + ns.x"),
    GROW.replace("SELF", "dict(a=ns.x, b=ns.x)"),
    GROW.replace("SELF", "ns.x ~ ns.x"),
    GROW.replace("SELF", "[ns.x]"),
    "{% for a in range(9999) %}" + "y" * 100_000 + "{% endfor %}",
    "{% for a in range(9999) %}{% set z %}" + "y" * 100_000 + "{% endset %}{% endfor %}",
    "{% filter upper %}{% for a in range(9999) %}" + "y" * 100_000 + "{% endfor %}{% endfilter %}",
    "{% set b = 'a' * 6000000 %}" + "".join(f"{{% set v{i} = b ~ {i} %}}" for i in range(200)),
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(1) }}",
    "{% for a in range(9999) recursive %}{{ loop(range(9999)) }}{% endfor %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "{{ " + "9" * 100_000 + " }}",
    "{{" * 60_000,
]


@pytest.mark.parametrize("source", FLOODS, ids=range(len(FLOODS)))
def test_floods_are_stopped_early(source: str) -> None:
    started = time.monotonic()
    error_of(source)
    assert time.monotonic() - started < 10


ENDLESS = [
    "{% for a in range(9999) %}" * 3 + "{% endfor %}" * 3,
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% set b = 'a' * 3000000 ~ 'b' %}{% set c = 'a' * 1500000 ~ 'c' %}" + "{% if c in b %}{% endif %}" * 4000,
]


@pytest.mark.parametrize("source", ENDLESS, ids=["loops", "macros", "searches"])
def test_endless_templates_meet_a_deadline_in_any_thread(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_SECONDS", 0.2)
    errors: list[ChatTemplateError] = []
    thread = threading.Thread(target=lambda: errors.append(error_of(source)))
    started = time.monotonic()
    thread.start()
    thread.join()
    assert time.monotonic() - started < 8
    assert "was stopped" in errors[0].message


def test_a_namespace_that_holds_itself_prints_as_a_namespace() -> None:
    source = "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}{{ [ns] }}{{ 'a' ~ ns }}"
    assert rendered(source) == "<Namespace>[<Namespace>]a<Namespace>"
