"""JSON texts that a decoder and encoder would not give back as they were."""

from __future__ import annotations

__all__ = (
    "ARGUMENTS",
    "COMPLETED",
    "COMPLETION",
    "DISCOVERED",
    "PAGE",
    "PROMPT",
    "PROMPTS",
    "PROMPT_ARGUMENTS",
    "RESOURCE",
    "RESOURCES",
    "RESULT",
    "TEMPLATES",
)

_ODD = (
    b'{"price": 1.10, "huge":1E400, "zero":-0.0, "long":123456789012345678901234, "above":9007199254740993,'
    b'"escaped":"\\u00e9\\/", "plain":"\xc3\xa9", "lone":"\\ud800", "twice":1, "twice":2, "":{}}'
)
RESULT = (
    b'{ "zzz" : {"later":[ ]},"content" :[{"text":"\\u0041\xe2\x80\xa8","type":"text","unknown":1.0}],'
    b'\t"structuredContent":' + _ODD + b',"isError":false,"_meta":{"x/y":1e2}, "resultType":"complete" }'
)
PAGE = (
    b'{"tools":[{"inputSchema":{"type":"object","properties":{"n":{"maximum":1.0e3}}},"name":"echo","later":-0.0}],'
    b' "nextCursor":"","ttlMs":0, "cacheScope":"private","resultType":"complete"}'
)
RESOURCE = b'{"contents":[ {"text":"\\ud83d","uri":"fake://one","size":1.50} ],"ttlMs":1E3,"cacheScope":"private"}'
RESOURCES = (
    b'{"resources":[{"size":1E3,"uri":"fake://one","name":"\\u006fne","later":[-0.0 ]} ], "nextCursor":"","ttlMs":0,'
    b'"cacheScope":"private","resultType":"complete"}'
)
TEMPLATES = (
    b'{ "resourceTemplates":[{"uriTemplate":"fake:\\/\\/{which}","name":"any","n":9007199254740993}],"ttlMs":0.0,'
    b'"cacheScope":"private", "resultType":"complete"}'
)
PROMPTS = (
    b'{"cacheScope":"private","prompts":[{"name":"greet","arguments":[{"required":true,"name":"who","n":1.10}]}] ,'
    b'"ttlMs":0,"nextCursor":"\\ud800","resultType":"complete"}'
)
PROMPT = (
    b'{"messages":[{"content":{"text":"\\u0041\xe2\x80\xa8","type":"text","n":1e400},"role":"user"}],'
    b'"twice":1, "twice":2, "resultType":"complete" }'
)
PROMPT_ARGUMENTS = b'{"who":"\\u00e9 \xc3\xa9 \\ud800" , "a": "\\/", "a":""}'
COMPLETION = {
    "ref": b'{ "type":"ref\\/prompt","name":"greet", "title":"\\u00e9","later":1.10 }',
    "argument": b'{"value":"\\ud83d","name": "who"}',
    "context": b'{"arguments":{"how":"\xc3\xa9\\u0020"}, "later":1E400}',
}
"""The parts of a completion."""
COMPLETED = b'{"completion":{"values":["\\u0041da"],"total":1.0 ,"hasMore":false},"later":-0.0,"resultType":"complete"}'
DISCOVERED = (
    b'{"supportedVersions":["2026-07-28"], "ttlMs":0,"cacheScope":"private","capabilities":{"tools":{"n":1.10}},'
    b'"resultType":"complete","later":{"a":1,"a":2}}'
)
ARGUMENTS = b'{"b":9007199254740993,"a": 1.10, "huge":1e400,"s":"\\u00e9 \xc3\xa9 \\ud800" , "a":-0.0}'
