"""The loop of `AvroScanner` over bytes into arrays, compiled by numba.

A writer's schema is a list of instructions: one for each value, in the order of the bytes, with jumps over what is not there.
"""

from __future__ import annotations

from typing import Any

from ebbtide.formats._scan_loops import (
    BYTES,
    DEEPEST,
    DOUBLE,
    FALSE,
    FLOAT,
    INTEGER,
    NULL,
    OBJECT,
    TEXT,
    TRUE,
)

END, RECORD_OP, NULL_OP, BOOLEAN_OP, FLOAT_OP, DOUBLE_OP, FIXED_OP, NEXT_OP = range(8)
"""The end of the value; a record, whose fields follow; values without a length; the end of an item of an array or a map."""
UNION_OP, LONG_OP, STRING_OP, BYTES_OP, ENUM_OP, BLOCKS_OP = range(8, 14)
"""A union with null; values that begin with a number; the count of the next items of an array or a map."""
_MOST_BITS = 63
"""Most bits of a number as it is written, in whole bytes: one of ten bytes is left."""
_MOST_DIGITS = 19
_MINUS, _ZERO = b"-0"


def decode(
    data: Any,
    begins: Any,
    ends: Any,
    ops: Any,
    fields: Any,
    jumps: Any,
    numbers: Any,
    symbols: Any,
    to: Any,
    counts: Any,
    kinds: Any,
    starts: Any,
    stops: Any,
    is_taken: Any,
) -> None:
    """Decode values: fill the last four arrays, and write the digits of numbers into the data.

    Args:
        data: The bytes of all values, then those of the symbols of enums, then room for digits.
        begins: (n,) where each value begins.
        ends: (n,) where it ends.
        ops: (instructions,) see above.
        fields: (instructions,) number of the value's field; -1: it is not read.
        jumps: (instructions,) of a union, the instruction after it; of the count of items, the one after all; of the end of an item,
            the count; of an enum, the number of its symbols.
        numbers: (instructions,) of a union, the index of null; of a fixed, its bytes; of an enum, its first symbol.
        symbols: (symbols + 1,) where each begins, and the last ends.
        to: Where the room for digits begins.
        counts: (`DEEPEST`,) room for the counts of items.
        kinds: (fields, n) kind of each field's cell.
        starts: (fields, n) where a text, digits or bytes begin.
        stops: (fields, n) where they end.
        is_taken: (n,) the value fits its schema.
    """
    for row in range(len(begins)):
        at = begins[row]
        end = ends[row]
        depth = 0
        step = 0
        while True:
            op = ops[step]
            field = fields[step]
            if op == END:
                is_taken[row] = at == end
                break
            number = 0
            if op >= UNION_OP:
                # Seven bits a byte, the lowest first; the lowest bit of all is the sign.
                bits = 0
                byte = 128
                while byte >= 128 and at < end and bits < _MOST_BITS:
                    byte = int(data[at])
                    number |= (byte & 127) << bits
                    bits += 7
                    at += 1
                if byte >= 128:
                    break
                number = (number >> 1) ^ -(number & 1)
            start = at
            stop = at
            kind = NULL
            if op == UNION_OP:
                if number == 1 - numbers[step]:
                    step += 1
                    continue
                if number != numbers[step]:
                    break
                if field >= 0:
                    kinds[field, row] = NULL
                step = jumps[step]
                continue
            if op == BLOCKS_OP:
                if number == 0:
                    step = jumps[step]
                    continue
                # An item has a byte or more; a negative count, with the size of the items, is unusual.
                if number < 0 or number > end - at or depth == DEEPEST:
                    break
                counts[depth] = number
                depth += 1
                step += 1
                continue
            if op == NEXT_OP:
                counts[depth - 1] -= 1
                step = jumps[step]
                if counts[depth - 1] > 0:
                    step += 1
                else:
                    depth -= 1
                continue
            if op == LONG_OP:
                if field >= 0:
                    is_negative = number < 0
                    rest = -number if is_negative else number
                    n_digits = 1
                    bound = 10
                    while n_digits < _MOST_DIGITS and rest >= bound:
                        n_digits += 1
                        bound *= 10
                    kind = INTEGER
                    start = to
                    if is_negative:
                        data[to] = _MINUS
                        to += 1
                    stop = to + n_digits
                    for place in range(stop - 1, to - 1, -1):
                        data[place] = _ZERO + rest % 10
                        rest //= 10
                    to = stop
            elif op == RECORD_OP:
                kind = OBJECT
            elif op == ENUM_OP:
                if number < 0 or number >= jumps[step]:
                    break
                kind = TEXT
                start = symbols[numbers[step] + number]
                stop = symbols[numbers[step] + number + 1]
            elif op == BOOLEAN_OP:
                if at >= end or data[at] > 1:
                    break
                kind = TRUE if data[at] == 1 else FALSE
                at += 1
            elif op != NULL_OP:
                kind = BYTES
                if op == FLOAT_OP:
                    kind = FLOAT
                    number = 4
                elif op == DOUBLE_OP:
                    kind = DOUBLE
                    number = 8
                elif op == FIXED_OP:
                    number = numbers[step]
                if number < 0 or number > end - at:
                    break
                at += number
                stop = at
                if op == STRING_OP:
                    kind = TEXT
                    # UTF-8: the first byte says how many follow; the second is further bound after some.
                    n_further = 0
                    least = 0x80
                    most = 0xBF
                    for place in range(start, stop):
                        c = data[place]
                        if n_further > 0:
                            if c < least or c > most:
                                break
                            n_further -= 1
                            least = 0x80
                            most = 0xBF
                        elif c >= 0x80:
                            if c < 0xC2 or c > 0xF4:
                                n_further = 1
                                break
                            n_further = 1 + (c >= 0xE0) + (c >= 0xF0)
                            if c == 0xE0:
                                least = 0xA0
                            elif c == 0xED:
                                most = 0x9F
                            elif c == 0xF0:
                                least = 0x90
                            elif c == 0xF4:
                                most = 0x8F
                    if n_further > 0:
                        break
            if field >= 0:
                kinds[field, row] = kind
                starts[field, row] = start
                stops[field, row] = stop
            step += 1
