"""The loops of `scan` over bytes into arrays, compiled by numba.

Kinds of cells: no such field, scalars (with separate kinds for texts with escapes and numbers other than plain
integers), an object, a list. Only values of Avro are bytes, or binary numbers of 4 or 8 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ABSENT, NULL, TEXT, ESCAPED, INTEGER, NUMBER, TRUE, FALSE, OBJECT, LIST, BYTES, FLOAT, DOUBLE = range(13)
_GREATEST = np.frombuffer(b"9223372036854775807", np.uint8)
"""The digits of the greatest integer of 64 bits."""
MOST_READ = 1000
"""Maximum digits of a number: Python parses no integer with more than 4,300."""
DEEPEST = 32
"""Maximum nesting of objects and lists."""
_TAB, _QUOTE, _COMMA, _COLON, _BACKSLASH = b'\t",:\\'
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = b"{}[]"
_LIST = -1
"""Marks a list on the stack of open objects."""
_MINUS, _PLUS, _DOT, _ZERO, _SMALL_E, _LARGE_E = b"-+.0eE"
_B, _F, _N, _R, _T, _U = b"bfnrtu"
_BACKSPACE, _FORM_FEED, _NEW_LINE, _RETURN = b"\b\f\n\r"
_ANY = np.arange(256)
_IS_SPACE = np.isin(_ANY, list(b" \t"))
_IS_DIGIT = np.isin(_ANY, list(b"0123456789"))
_IS_PLAIN = (_ANY >= 32) & ~np.isin(_ANY, list(b'"\\'))
"""Bytes that need no escape in a text."""
_IS_ESCAPE = np.isin(_ANY, list(b'"\\/bfnrt'))
"""Bytes that may follow a backslash, except `u` with four hexadecimal digits."""
_NO_HEX = -(16**4)
_HEX_VALUES = np.full(256, _NO_HEX)
"""The value of each character as a hexadecimal digit; a number with any other character is negative."""
for _hex_digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _HEX_VALUES[list(_hex_digits)] = np.arange(16)
_ESCAPE_LENGTH = len(r"\u0000")
_HIGH, _LOW, _PAST_LOW = 0xD800, 0xDC00, 0xE000
"""First halves of a character above the first 65,536; second halves; what comes after these."""
_NULL_WORD = np.frombuffer(b"null", np.uint8)
_TRUE_WORD = np.frombuffer(b"true", np.uint8)
_FALSE_WORD = np.frombuffer(b"false", np.uint8)

EXACT = 1
SCALAR, ANY = -1, -2
"""Contents of a field that is not walked into: a scalar; any JSON, whose list or object is one cell."""


def byte(data: Any, at: int) -> int:
    """Return a byte. Numba asks of each signed index whether it counts from the end: that took a third of the time."""
    found: int = data[np.uint64(at)]
    return found


def exceeds(data: Any, at: int, n_digits: int, greatest: Any) -> bool:
    """Return whether a number without leading zeros exceeds another one.

    Args:
        data: The bytes of all records.
        at: Where its digits begin.
        n_digits: Number of its digits.
        greatest: Digits of the other one.
    """
    if n_digits != len(greatest):
        return n_digits > len(greatest)
    place = 0
    while place < n_digits - 1 and data[at + place] == greatest[place]:
        place += 1
    is_above: bool = data[at + place] > greatest[place]
    return is_above


def scan(
    data: Any,
    begins: Any,
    ends: Any,
    names: Any,
    name_ends: Any,
    child_node: Any,
    first_child: Any,
    is_exact: Any,
    other_names: Any,
    other_ends: Any,
    outer: Any,
    kinds: Any,
    starts: Any,
    stops: Any,
    is_taken: Any,
) -> None:
    """Scan records: fill the last four arrays.

    A record is a walk over fields: name, colon, value, and a comma or closing braces. Anything unexpected ends the
    walk, and the record is not taken. A source writes its fields in one order, so the field after the last one is tried first.

    Args:
        data: The bytes of all records.
        begins: (n,) where each begins.
        ends: (n,) where each ends.
        names: The bytes of all names.
        name_ends: (fields + 1,) where each begins, and the last ends.
        child_node: (fields,) the object in a field; else `SCALAR` or `ANY`.
        first_child: (objects + 1,) the first field of each object; an object's fields are adjacent. Object 0 is the
            record, the last one is any object in an ignored field.
        is_exact: (objects,) `EXACT`: it may have no other fields, except names with one of the following prefixes.
        other_names: The bytes of these prefixes; a whole name ends in its quote.
        other_ends: (prefixes + 1,) where each begins, and the last ends.
        outer: (`DEEPEST`,) room for the objects that are open.
        kinds: (fields, n) kind of each field's cell.
        starts: (fields, n) where a text, a number, or the JSON in a field of `ANY` begins.
        stops: (fields, n) where it ends.
        is_taken: (n,) the record has the form.
    """
    unknown = len(is_exact) - 1
    is_plain = _IS_PLAIN
    is_escape = _IS_ESCAPE
    hex_values = _HEX_VALUES
    is_space = _IS_SPACE
    is_digit = _IS_DIGIT
    greatest = _GREATEST
    for row in range(len(begins)):
        at = begins[row]
        end = ends[row]
        while at < end and is_space[byte(data, at)]:
            at += 1
        if at >= end or byte(data, at) != _OPEN:
            continue
        at += 1
        node = 0
        depth = 0
        expected = 0
        has_begun = True  # an object whose first field or end comes next
        whole_field = -1  # the field of `ANY` that the walk is in
        whole_depth = -1
        while True:
            while at < end and is_space[byte(data, at)]:
                at += 1
            if at >= end:
                break
            is_list = node == _LIST
            if not (has_begun and byte(data, at) == (_CLOSE_LIST if is_list else _CLOSE)):
                field = -1
                if not is_list:
                    # The field's name.
                    if byte(data, at) != _QUOTE:
                        break
                    at += 1
                    first = first_child[node]
                    n_fields = first_child[node + 1] - first
                    for turn in range(n_fields):
                        tried = expected + turn
                        if tried >= first + n_fields:
                            tried -= n_fields
                        name = name_ends[tried]
                        length = name_ends[tried + 1] - name
                        if at + length < end and byte(data, at + length) == _QUOTE:
                            n_equal = 0
                            while n_equal < length and byte(data, at + n_equal) == byte(names, name + n_equal):
                                n_equal += 1
                            if n_equal == length:
                                field = tried
                                expected = tried + 1
                                at += length
                                break
                    if field < 0:
                        may_be_here = is_exact[node] != EXACT
                        for other in range(0 if may_be_here else len(other_ends) - 1):
                            name = other_ends[other]
                            length = other_ends[other + 1] - name
                            n_equal = 0
                            while (
                                n_equal < length
                                and at + n_equal < end
                                and byte(data, at + n_equal) == byte(other_names, name + n_equal)
                            ):
                                n_equal += 1
                            if n_equal == length:
                                may_be_here = True
                                break
                        if not may_be_here:
                            break
                        while at < end and is_plain[byte(data, at)]:
                            at += 1
                        if at >= end or byte(data, at) != _QUOTE:
                            break
                    elif kinds[field, row] != ABSENT:
                        break  # twice
                    at += 1
                    while at < end and is_space[byte(data, at)]:
                        at += 1
                    if at >= end or byte(data, at) != _COLON:
                        break
                    at += 1
                    while at < end and is_space[byte(data, at)]:
                        at += 1
                    if at >= end:
                        break
                # Its value.
                begin = byte(data, at)
                start = at
                stop = at
                kind = ABSENT
                if begin == _QUOTE:
                    at += 1
                    start = at
                    kind = TEXT
                    is_split = False  # the second half of a character comes next
                    while True:
                        while not is_split and at < end and is_plain[byte(data, at)]:
                            at += 1
                        if at + 1 >= end or byte(data, at) != _BACKSLASH:
                            break
                        kind = ESCAPED
                        if byte(data, at + 1) == _U:
                            code = _NO_HEX
                            if at + _ESCAPE_LENGTH <= end:
                                code = 0
                                for digit in range(at + 2, at + _ESCAPE_LENGTH):
                                    code = code * 16 + hex_values[byte(data, digit)]
                            is_low = _LOW <= code < _PAST_LOW
                            if code < 0 or is_low != is_split:
                                break
                            is_split = _HIGH <= code < _LOW
                            at += _ESCAPE_LENGTH
                        elif is_split or not is_escape[byte(data, at + 1)]:
                            break
                        else:
                            at += 2
                    if is_split or at >= end or byte(data, at) != _QUOTE:
                        break
                    stop = at
                    at += 1
                elif begin == _MINUS or is_digit[begin]:
                    kind = INTEGER
                    if begin == _MINUS:
                        at += 1
                    first_digit = at
                    # Up to three runs of digits, none empty: before the point, after it, and the exponent.
                    n_runs = 0
                    n_digits = 0
                    is_whole = True
                    while True:
                        digits = at
                        while at < end and is_digit[byte(data, at)]:
                            at += 1
                        if at == digits:
                            is_whole = False
                            break
                        if n_runs == 0:
                            n_digits = at - digits
                        if at >= end:
                            break
                        if byte(data, at) == _DOT and n_runs == 0:
                            n_runs = 1
                            at += 1
                        elif byte(data, at) in (_SMALL_E, _LARGE_E) and n_runs < 2:
                            n_runs = 2
                            at += 1
                            if at < end and byte(data, at) in (_MINUS, _PLUS):
                                at += 1
                        else:
                            break
                    if not is_whole or n_digits > MOST_READ:
                        break
                    begins_with_zero = byte(data, first_digit) == _ZERO
                    if begins_with_zero and n_digits > 1:
                        break
                    if n_runs > 0:
                        kind = NUMBER
                    elif begins_with_zero and begin == _MINUS:
                        break
                    if n_digits >= len(greatest) and exceeds(data, first_digit, n_digits, greatest):
                        kind = NUMBER
                    stop = at
                elif begin in (_OPEN, _OPEN_LIST):
                    inner = _LIST if begin == _OPEN_LIST else unknown
                    if field >= 0 and child_node[field] == ANY:
                        kinds[field, row] = LIST if begin == _OPEN_LIST else OBJECT
                        starts[field, row] = at
                        whole_field = field
                        whole_depth = depth
                    elif field >= 0:
                        inner = child_node[field]
                        if inner < 0 or begin == _OPEN_LIST:
                            break
                        kinds[field, row] = OBJECT
                    if depth == DEEPEST:
                        break
                    outer[depth] = node
                    depth += 1
                    node = inner
                    expected = first_child[node] if node >= 0 else 0
                    has_begun = True
                    at += 1
                    continue
                else:
                    word = _NULL_WORD
                    kind = NULL
                    if begin == _T:
                        word = _TRUE_WORD
                        kind = TRUE
                    elif begin == _F:
                        word = _FALSE_WORD
                        kind = FALSE
                    n_equal = 0
                    while n_equal < len(word) and at < end and byte(data, at) == word[n_equal]:
                        n_equal += 1
                        at += 1
                    if n_equal < len(word):
                        break
                    stop = start
                if field >= 0:
                    if child_node[field] >= 0 and kind != NULL:
                        break
                    kinds[field, row] = kind
                    starts[field, row] = start
                    stops[field, row] = stop
            # A value, or an object without fields, has ended: read all closing braces, then a comma.
            has_begun = False
            while True:
                while at < end and is_space[byte(data, at)]:
                    at += 1
                if at >= end or byte(data, at) != (_CLOSE_LIST if node == _LIST else _CLOSE):
                    break
                at += 1
                depth -= 1
                if depth < 0:
                    break
                node = outer[depth]
                expected = first_child[node] if node >= 0 else 0
                if depth == whole_depth:
                    stops[whole_field, row] = at
                    whole_depth = -1
            if depth < 0:
                while at < end and is_space[byte(data, at)]:
                    at += 1
                is_taken[row] = at == end
                break
            if at >= end or byte(data, at) != _COMMA:
                break
            at += 1


def gather(
    data: Any,
    kinds: Any,
    starts: Any,
    stops: Any,
    offsets: Any,
    out: Any,
) -> int:
    """Write the texts and numbers of a field one after another; return their bytes.

    Args:
        data: The bytes of all records.
        kinds: (n,) kind of the field's cell.
        starts: (n,) where it begins.
        stops: (n,) where it ends.
        offsets: (n + 1,) filled: where each begins in `out`, and the last ends.
        out: Filled; must have at least the total number of bytes from starts to stops.
    """
    hex_values = _HEX_VALUES
    to = 0
    for row in range(len(kinds)):
        kind = kinds[row]
        if kind in (TEXT, INTEGER, NUMBER):
            for at in range(starts[row], stops[row]):
                out[np.uint64(to)] = byte(data, at)
                to += 1
        elif kind == ESCAPED:
            at = starts[row]
            while at < stops[row]:
                c = byte(data, at)
                if c == _BACKSLASH:
                    at += 1
                    c = byte(data, at)
                    if c == _U:
                        code = 0
                        for digit in range(at + 1, at + _ESCAPE_LENGTH - 1):
                            code = code * 16 + hex_values[byte(data, digit)]
                        at += _ESCAPE_LENGTH - 1
                        if _HIGH <= code < _LOW:
                            low = 0
                            for digit in range(at + 2, at + _ESCAPE_LENGTH):
                                low = low * 16 + hex_values[byte(data, digit)]
                            at += _ESCAPE_LENGTH
                            code = 0x10000 + ((code - _HIGH) << 10) + (low - _LOW)
                        # UTF-8: the first byte says how many follow, each of 6 bits.
                        n_further = (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
                        head = 0 if n_further == 0 else 256 - (256 >> (n_further + 1))
                        out[np.uint64(to)] = head | code >> 6 * n_further
                        to += 1
                        for further in range(n_further - 1, -1, -1):
                            out[np.uint64(to)] = 0x80 | code >> 6 * further & 0x3F
                            to += 1
                        continue
                    if c == _B:
                        c = _BACKSPACE
                    elif c == _F:
                        c = _FORM_FEED
                    elif c == _N:
                        c = _NEW_LINE
                    elif c == _R:
                        c = _RETURN
                    elif c == _T:
                        c = _TAB
                out[np.uint64(to)] = c
                to += 1
                at += 1
        offsets[row + 1] = to
    return to


def integers(data: Any, kinds: Any, starts: Any, stops: Any, values: Any) -> None:
    """Read the integers of a field; arguments as `gather`, but that `values` (n,) is filled."""
    for row in range(len(kinds)):
        if kinds[row] == INTEGER:
            at = starts[row]
            is_negative = byte(data, at) == _MINUS
            if is_negative:
                at += 1
            number = 0
            for digit in range(at, stops[row]):
                number = number * 10 + (byte(data, digit) - _ZERO)
            values[row] = -number if is_negative else number


def elements(
    data: Any,
    cells: Any,
    starts: Any,
    stops: Any,
    offsets: Any,
    name_starts: Any,
    name_stops: Any,
    kinds: Any,
    element_starts: Any,
    element_stops: Any,
) -> int:
    """Split the lists and objects of a field into their elements; return the number of elements.

    Args:
        data: The bytes of all records.
        cells: (n,) kind of the field's cell; only `LIST` and `OBJECT` have elements. `scan` has found them to be JSON.
        starts: (n,) where it begins.
        stops: (n,) where it ends.
        offsets: (n + 1,) filled: the first element of each, and the end of the last.
        name_starts: Filled for elements of objects: where the name begins. This and the next four must have at least half of the
            total number of bytes from starts to stops.
        name_stops: Filled for elements of objects: where the name ends.
        kinds: Filled: kind of the element's cell.
        element_starts: Filled: where it begins.
        element_stops: Filled: where it ends.
    """
    is_space = _IS_SPACE
    is_digit = _IS_DIGIT
    greatest = _GREATEST
    n = 0
    for row in range(len(cells)):
        has_names = cells[row] == OBJECT
        at = starts[row] + 1
        end = stops[row] - 1
        while has_names or cells[row] == LIST:
            while at < end and (is_space[byte(data, at)] or byte(data, at) == _COMMA):
                at += 1
            if at >= end:
                break
            if has_names:
                at += 1
                name_starts[n] = at
                while byte(data, at) != _QUOTE:  # a name with an escape is not taken
                    at += 1
                name_stops[n] = at
                at += 1
                while is_space[byte(data, at)] or byte(data, at) == _COLON:
                    at += 1
            begin = byte(data, at)
            start = at
            if begin == _QUOTE:
                start = at + 1
                kind = TEXT
                at = start
                while byte(data, at) != _QUOTE:
                    if byte(data, at) == _BACKSLASH:
                        kind = ESCAPED
                        at += 1
                    at += 1
                stop = at
                at += 1
            elif begin in (_OPEN, _OPEN_LIST):
                kind = OBJECT if begin == _OPEN else LIST
                depth = 0
                is_in_text = False
                while True:
                    c = byte(data, at)
                    at += 1
                    if is_in_text:
                        if c == _BACKSLASH:
                            at += 1
                        elif c == _QUOTE:
                            is_in_text = False
                    elif c == _QUOTE:
                        is_in_text = True
                    elif c in (_OPEN, _OPEN_LIST):
                        depth += 1
                    elif c in (_CLOSE, _CLOSE_LIST):
                        depth -= 1
                        if depth == 0:
                            break
                stop = at
            elif begin == _MINUS or is_digit[begin]:
                kind = INTEGER
                at += 1
                while at < end and not (is_space[byte(data, at)] or byte(data, at) == _COMMA):
                    if not is_digit[byte(data, at)]:
                        kind = NUMBER
                    at += 1
                stop = at
                first_digit = start + (begin == _MINUS)
                n_digits = stop - first_digit
                if n_digits >= len(greatest) and exceeds(data, first_digit, n_digits, greatest):
                    kind = NUMBER
            else:
                kind = TRUE if begin == _T else FALSE if begin == _F else NULL
                while at < end and not (is_space[byte(data, at)] or byte(data, at) == _COMMA):
                    at += 1
                stop = start
            kinds[n] = kind
            element_starts[n] = start
            element_stops[n] = stop
            n += 1
        offsets[row + 1] = n
    return n
