"""Malformed and odd trace files: what refuses them (line, rule), or the rows that they hold."""

import gzip

AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
STAMP = b"2023-11-16 18:17:03.9799600"
TABLE = b"dispatch_ms,isl,osl\n"
PREFIX = b"dispatch_ms,isl,prefix,osl\n"
GROUP = b"dispatch_ms,isl,osl,prefix_group,prefix_len\n"
MOON = b'{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [0]}\n'


def moon(timestamp: str = "5", isl: str = "9", osl: str = "2") -> bytes:
    """One Mooncake line with these values as written."""
    return f'{{"timestamp": {timestamp}, "input_length": {isl}, "output_length": {osl}}}\n'.encode()


REFUSED: dict[str, tuple[bytes, int | None, str]] = {
    # the file
    "empty file": (b"", None, "empty"),
    "blank lines only": (b"\n\r\n\n", None, "empty"),
    "mark only": (b"\xef\xbb\xbf", None, "empty"),
    "latin-1": (GROUP + b"0,5,1,a,2\n1,5,1,caf\xe9,2\n", 3, "byte 0xe9 is not UTF-8"),
    "utf-16": ("dispatch_ms,isl,osl\n0,5,1\n".encode("utf-16"), 1, "byte 0xff is not UTF-8"),
    "nul byte": (TABLE + b"0,5,1\n1,\x005,1\n", 3, "NUL byte"),
    "old mac line ends": (b"dispatch_ms,isl,osl\r0,5,1\r", 1, "carriage return"),
    "gzip cut short": (gzip.compress(TABLE + b"0,5,1\n" * 99)[:-9], None, "cut short"),
    "gzip damaged": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff\xff" * 3, None, "not a sound gzip"),
    "json array": (b"[" + MOON + b"]", 1, "one JSON object a line"),
    "prose": (b"hello world\n", 1, "unknown column 'hello world'"),
    "parquet damaged": (b"PAR1 and then nothing of the kind", None, "not a sound Parquet file"),
    # the header
    "header only": (TABLE, 1, "no rows"),
    "header only, no line end": (TABLE[:-1], 1, "no rows"),
    "no header": (b"0,5,1\n1,5,1\n", 1, "unknown column '0'"),
    "unknown column": (b"dispatch_ms,isl,osl,session\n0,5,1,a\n", 1, "unknown column 'session'; known: isl, osl, dis"),
    "index column": (b",dispatch_ms,isl,osl\n0,0,5,1\n", 1, "unknown column ''"),
    "wrong case": (b"dispatch_ms,ISL,osl\n0,5,1\n", 1, "unknown column 'ISL'"),
    "missing column": (b"dispatch_ms,isl\n0,5\n", 1, "column osl is missing"),
    "repeated column": (b"dispatch_ms,isl,osl,isl\n0,5,1,6\n", 1, "column isl appears 2 times"),
    "no clock": (b"isl,osl\n5,1\n", 1, "no time column found; keep exactly one of"),
    "two clocks": (b"dispatch_ms,arrival_s,isl,osl\n0,0,5,1\n", 1, "dispatch_ms and arrival_s found"),
    "group without length": (b"dispatch_ms,isl,osl,prefix_group\n0,5,1,a\n", 1, "only together"),
    "azure column missing": (b"TIMESTAMP,ContextTokens\n" + STAMP + b",5\n", 1, "column GeneratedTokens is missing"),
    "azure column unknown": (AZURE[:-1] + b",Model\n" + STAMP + b",5,1,x\n", 1, "unknown column 'Model'"),
    # the fields
    "short row": (TABLE + b"0,5,1\n1,5\n", 3, "'1,5' has 2 fields, the header has 3"),
    "long row": (TABLE + b"0,5,1\n1,5,1,9\n", 3, "has 4 fields, the header has 3"),
    "long first row": (TABLE + b"1,5,1,9\n0,5,1\n", 2, "has 4 fields"),
    "decimal comma": (TABLE + b"0,5,1\n1,5,5,1\n", 3, "has 4 fields"),
    "blank line between": (TABLE + b"0,5,1\n\n1,5,1\n", 3, "'' has 1 field, "),
    "tabs under commas": (TABLE + b"0\t5\t1\n", 2, "has 1 field,"),
    "open quote": (TABLE + b'0,5,1\n1,"5,1\n2,5,1\n', 3, "a quoted field does not end"),
    "line end in quotes": (GROUP + b'0,5,1,"a\nb",2\n', 2, "a quoted field does not end"),
    "quote within a field": (GROUP + b'0,5,1,a"b,c"d,2\n', 2, "a quote within a field"),
    # the numbers
    "nan": (TABLE + b"0,5,1\nnan,5,1\n", 3, "dispatch_ms is 'nan', must be a finite number"),
    "inf": (TABLE + b"0,5,1\ninf,5,1\n", 3, "dispatch_ms is inf, must be a finite number"),
    "blank cell": (TABLE + b"0,,1\n", 2, "isl is '', must be a finite number"),
    "word": (TABLE + b"0,5,one\n", 2, "osl is 'one', must be a finite number"),
    "truth": (TABLE + b"0,True,1\n", 2, "must be a finite number"),
    "underscore": (TABLE + b"0,1_000,1\n", 2, "isl is '1_000', must be a finite number"),
    "negative time": (TABLE + b"0,5,1\n-1,5,1\n", 3, "dispatch_ms is -1, must be >= 0"),
    "time off the calendar": (TABLE + b"1e300,5,1\n", 2, "must be <= 1e+14"),
    "seconds that overflow": (b"arrival_s,isl,osl\n1e307,5,1\n", 2, "must be <= 1e+11"),
    "negative isl": (TABLE + b"0,-5,1\n", 2, "isl is -5, isl must be >= 1"),
    "zero isl": (TABLE + b"0,0,1\n", 2, "isl is 0, isl must be >= 1"),
    "zero osl": (TABLE + b"0,5,1\n1,5,0\n", 3, "osl is 0, osl must be >= 1"),
    "half a token": (TABLE + b"0,12.5,1\n", 2, "isl is 12.5, isl must be an integer"),
    "too many tokens": (TABLE + b"0,2147483648,1\n", 2, "isl must be <= 2147483647"),
    "past 64 bits": (TABLE + b"0," + b"9" * 30 + b",1\n", 2, "isl must be <= 2147483647"),
    "past float": (TABLE + b"0,5," + b"9" * 400 + b"\n", 2, "must be a finite number"),
    "prefix is isl": (PREFIX + b"0,5,5,1\n", 2, "prefix is 5, prefix must be < isl"),
    "prefix over isl": (PREFIX + b"0,5,4,1\n1,5,6,1\n", 3, "prefix is 6, prefix must be < isl"),
    "negative prefix": (PREFIX + b"0,5,-1,1\n", 2, "prefix must be >= 0"),
    "length without group": (GROUP + b"0,5,1,a,2\n1,5,1,,2\n", 3, "must be 0 where prefix_group is blank"),
    "earliest fault first": (TABLE + b"0,5,1\n1,5,0\n2,0,1\n-1,5,1\n", 3, "osl is 0"),
    "azure zero osl": (AZURE + STAMP + b",5,0\n", 2, "GeneratedTokens is 0, osl must be >= 1"),
    "azure date only": (AZURE + b"2023-11-16,5,1\n", 2, "TIMESTAMP is '2023-11-16', must be a date with time"),
    "azure now": (AZURE + b"now,5,1\n", 2, "must be a date with time"),
    "azure no such day": (AZURE + STAMP + b",5,1\n2023-02-30 18:17:03.97,5,1\n", 3, "must be a date with time"),
    # the objects
    "json cut short": (MOON + b'{"timestamp": 5, "input_le', 2, "not one whole JSON object"),
    "json blank line": (MOON + b"\n" + MOON, 2, "not one whole JSON object"),
    "two objects a line": (MOON[:-1] + MOON, 1, "Extra data"),
    "json number": (MOON + b"17\n", 2, "17 is not a JSON object"),
    "json key missing": (MOON + b'{"timestamp": 1, "input_length": 9}\n', 2, "key output_length is missing"),
    "json key unknown": (MOON + b'{"timestamp": 1, "chat_id": 7}\n', 2, "unknown key 'chat_id'; known: timestamp"),
    "json key repeated": (b'{"timestamp": 0, "timestamp": 9, "input_length": 9, "output_length": 2}', 1, "repeated"),
    "json nested": (MOON + b'{"a":' * 100_000, 2, "mend or delete the line"),
    "json text": (MOON + moon(isl='"12"'), 2, "must be a finite number"),
    "json null": (MOON + moon(osl="null"), 2, "output_length is 'null', must be a finite number"),
    "json true": (MOON + moon(isl="true"), 2, "input_length is 'true', must be a finite number"),
    "json nan": (MOON + moon(timestamp="NaN"), 2, "must be a finite number"),
    "json huge": (MOON + moon(isl="9" * 400), 2, "must be a finite number"),
    "json endless": (MOON + moon(isl="9" * 5000), 2, "not a record"),
    "json half a token": (MOON + moon(isl="12.5"), 2, "isl must be an integer"),
    "json zero osl": (MOON + moon(osl="0"), 2, "output_length is 0, osl must be >= 1"),
    "json negative time": (MOON + moon(timestamp="-1"), 2, "timestamp is -1, must be >= 0"),
}

READ: dict[str, tuple[bytes, list[tuple[float, int, int, int]]]] = {
    "byte order mark": (b"\xef\xbb\xbf" + TABLE + b"0,5,1\n", [(0, 5, 0, 1)]),
    "windows line ends": (b"dispatch_ms,isl,osl\r\n0,5,1\r\n2.5,6,2\r\n\r\n", [(0, 5, 0, 1), (2.5, 6, 0, 2)]),
    "no last line end": (TABLE + b"0,5,1", [(0, 5, 0, 1)]),
    "tabs": (b"dispatch_ms\tisl\tosl\n0\t5\t1\n", [(0, 5, 0, 1)]),
    "semicolons": (b"osl;isl;dispatch_ms\n1;5;0\n", [(0, 5, 0, 1)]),
    "spaces": (b"dispatch_ms, isl , osl\n0, 5 , 1\n", [(0, 5, 0, 1)]),
    "quotes": (b'"dispatch_ms","isl","osl"\n"0","5","1"\n', [(0, 5, 0, 1)]),
    "whole floats": (TABLE + b"0.0,5.0,1e1\n", [(0, 5, 0, 10)]),
    "seconds": (b"arrival_s,isl,osl\n0,5,1\n1.5,5,1\n", [(0, 5, 0, 1), (1500, 5, 0, 1)]),
    "arrival_ms": (b"arrival_ms,isl,osl\n7,5,1\n", [(7, 5, 0, 1)]),
    "prefix": (PREFIX + b"0,5,4,1\n", [(0, 5, 4, 1)]),
    "most tokens": (TABLE + b"0,2147483647,1\n", [(0, 2147483647, 0, 1)]),
    "ties keep order": (
        TABLE + b"1,5,1\n0,6,1\n1,7,1\n0,8,1\n",
        [(0, 6, 0, 1), (0, 8, 0, 1), (1, 5, 0, 1), (1, 7, 0, 1)],
    ),
    "gzip": (gzip.compress(TABLE + b"0,5,1\n"), [(0, 5, 0, 1)]),
    "gzip json": (gzip.compress(MOON), [(0, 9, 0, 2)]),
    "epoch": (b"arrival_s,isl,osl\n1700000001,5,1\n1700000000,6,1\n", [(0, 6, 0, 1), (1000, 5, 0, 1)]),
    "azure with offset": (
        AZURE + b"2024-05-10 02:00:00.5+02:00,5,1\n2024-05-10T00:00:00Z,6,1\n",
        [(0, 6, 0, 1), (500, 5, 0, 1)],
    ),
    "azure seven digits": (
        AZURE + STAMP + b",5,1\n2023-11-16 18:17:04.0319601,6,1\n",
        [(0, 5, 0, 1), (52.0001, 6, 0, 1)],
    ),
    "mooncake without hashes": (moon("7.25"), [(7.25, 9, 0, 2)]),
    "mooncake order of keys": (b'{"output_length": 2, "timestamp": 1, "input_length": 9.0}', [(1, 9, 0, 2)]),
}
