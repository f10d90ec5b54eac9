"""How models write thoughts and tool calls into their text, and the readers that find them (spec, parsers).

A format is a declaration: names, markers, and for tool calls a *body* of one of six families, which reads what follows
a start marker. A new format of a known family is a declaration and its vectors.

* ``declarations``, ``thought_declarations``, ``registry``: the table, and names to declarations.
* ``format``, ``reader``: what a declaration is, and what it makes for one choice.
* ``call_reader``, ``answer_reader``, ``thought_reader``, ``channels``: read one text; the last, harmony, of all kinds.
* ``json_body``, ``guided``, ``name_then_json``, ``xml_parameters``, ``pythonic``, ``gemma``: the bodies.
* ``json_objects``, ``json_text``, ``argument_scanner``, ``xml_values``, ``literals``, ``escapes``: what bodies read.
* ``tools``, ``schema_types``, ``typed_values``: what the request declares, and text to JSON by it.
* ``cursor``, ``markers``, ``quotation``: text that comes in pieces, markers cut anywhere, inline code.
* ``output``, ``call_ids``: what readers make of a piece: text, thoughts, fragments of calls.
"""
