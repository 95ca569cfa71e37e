"""JSON in GBNF: the rules that those of every schema refer to."""

from __future__ import annotations

from typing import Final

# No rule of a request's own begins with "json-". Numbers are finite, and halves of characters come in pairs, so that
# every reader of JSON takes what is written.
PRIMITIVES: Final = r"""
json-ws ::= ( " " | "\n" [ \t]{0,20} )?
json-value ::= json-object | json-array | json-string | json-number | json-boolean | json-null
json-object ::= "{" json-ws ( json-pair ( "," json-ws json-pair )* )? json-ws "}"
json-pair ::= json-string ":" json-ws json-value
json-array ::= "[" json-ws ( json-value ( "," json-ws json-value )* )? json-ws "]"
json-string ::= "\"" json-char* "\""
json-char ::= [\x20-\x21\x23-\x5B\x5D-\x7E\x80-\uD7FF\uE000-\U0010FFFF] | "\\" ( ["\\/bfnrt] | "u" json-code )
json-code ::= [0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] ( [0-7] [0-9a-fA-F]{2} | json-pair-of-halves )
json-pair-of-halves ::= [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}
json-natural ::= "0" | [1-9] [0-9]{0,17}
json-integer ::= "-"? json-natural
json-fraction ::= ( "." [0-9]{1,18} )? ( [eE] ( "-" [0-9]{1,3} | "+"? json-exponent ) )?
json-exponent ::= [0-9]{1,2} | [01] [0-9]{2} | "2" [0-7] [0-9]
json-number ::= json-integer json-fraction
json-boolean ::= "true" | "false"
json-null ::= "null"
json-date ::= [0-9]{4} "-" json-day | json-leap-year "-02-29"
json-day ::= json-month-of-31 "-" json-day-to-28 | json-month-of-31 "-" ( "29" | "3" [01] ) | json-other-months
json-other-months ::= ( "0" [469] | "11" ) "-" ( json-day-to-28 | "29" | "30" ) | "02-" json-day-to-28
json-month-of-31 ::= "0" [13578] | "1" [02]
json-day-to-28 ::= "0" [1-9] | "1" [0-9] | "2" [0-8]
json-leap-year ::= [0-9]{2} json-four | json-four "00" | "0000"
json-four ::= "0" [48] | [2468] [048] | [13579] [26]
json-hour ::= [01] [0-9] | "2" [0-3]
json-time ::= json-hour ":" [0-5] [0-9] ":" [0-5] [0-9] ( "." [0-9]{1,9} )? ( "Z" | [-+] json-hour ":" [0-5] [0-9] )
json-uuid ::= [0-9a-fA-F]{8} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{12}
"""
