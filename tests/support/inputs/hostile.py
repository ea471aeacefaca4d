"""Names and values that break what pastes them into SQL, paths, JSON, terminals or logs."""

from __future__ import annotations

TEXTS = (
    *("a.b", "a b", " lead", "trail ", "a,b", "a;b", "a=b", "a{b}", "a(b)", "a[0]", "a|b", "a/b", "a\\b", "a:b", "a@b", "a#b", "a?b"),
    *("a`b", "``", "'", '"', "a'b", 'a"b', "\\", "\\n", "\\u0000", "%", "%s", "%(x)s", "{}", "{0}", "$", "*", "-", "--", "/*", "#", "@"),
    *("'; DROP TABLE sink; --", "x') OR 1=1 --", "1; SELECT 1", "a) USING delta LOCATION '/tmp/x' --", "/**/", "`; DROP"),
    *("..", ".", "../x", "../../etc/passwd", "/etc/passwd", "..\\x", "%2e%2e%2fx", "%2e", "a/../b", "~", "~root", "//x", "./x"),
    *("${HOME}", "$HOME", "{{ env.HOME }}", "${env:HOME}", "$(id)", "`id`", "<script>alert(1)</script>", "&amp;", "<!--"),
    *("CON", "NUL", "aux.txt", "C:\\x", "C:/x", "\\\\host\\x", "file:/x", "file:///etc/passwd", "http://host/x", "jdbc:x:y"),
    *("a\nb", "a\rb", "a\tb", "a\x00b", "\x00", "a\x01b", "a\x1b[2Jb", "a\x7fb", "a\x85b", "\u2028", "a\u2028b", "\n"),
    *("\u202eabc", "a\u2066b", "\u200fa", "\u0627\u0644", "\ufeffa", "a\u200db", "😀", "\U0010ffff", "ü", "e\u0301", "\u00e9", "ﬁ", "\u0130", "\u0131", "ß"),
    *("", " ", "\u00a0", "x" * 255, "x" * 256, "x" * 100_000, "1", "1a", "-1", "0x1F", "1e9", "NaN", "null", "true", "None"),
    *("select", "timestamp", "key", "value", "rows", "at", "rank", "decided", "shown", "_n", "__x", "table", "default", "col"),
    *("s3://key:secret@bucket/x", "password=hunter2", "a\ud800b"),
)  # fmt: skip
"""All of them strings; the last one cannot be written as UTF-8."""


def quoted(name: str) -> str:
    """Quote a name as a column of DDL."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
