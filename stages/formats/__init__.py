"""How models write thoughts and tool calls into their text, and the readers that find them (spec, parsers).

A format is a declaration of ``stages.formats.declarations``: names, markers, and for tool calls a *body* of one of six
families, which reads what follows a start marker.

    cursor  markers                         text that comes in pieces; markers that may be cut anywhere
    output  call_ids                        what a reader makes of a piece: text, thoughts, fragments of calls
    tools  schema_types  typed_values       what the request declares; text to JSON by the types of a schema
    format  declarations  registry          the table, and names to declarations
    call_reader  thought_reader  channels   one choice's text: calls, thoughts, or harmony's channels with both
    json_body  guided  name_then_json  xml_parameters  pythonic  gemma      the bodies
    json_objects  json_text  argument_scanner  literals                     pieces that bodies share
"""
