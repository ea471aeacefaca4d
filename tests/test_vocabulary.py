"""Code and pages use the field's words, and pages have short sentences."""

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from frame.source import nodes_of

pytestmark = pytest.mark.group("rooms")
ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    "told": r"\b(un)?told\b",  # known, recorded, reported; unknown
    "tell": r"\btells?\b",  # shows, says, reports
    "others": r"\bothers\b",  # other writers, another client
    "somebody": r"\b(somebody|whoever|nobody)\b",  # a person, the reader, no one
    "anew": r"\banew\b",  # again, recreated
    "for ever": r"\bfor ever\b",  # permanently, forever
}
"""Name to pattern, without case; the better words stand beside it."""
QUESTIONS = ("What ", "Which ", "Whether ", "How ")
ALLOWED: dict[str, dict[str, int]] = {}
"""Page to word to count, where a word is right; the reason stands beside it."""
MOST_IN_ROOMS = {"storage": 3}
"""Room to the words and docstrings that it may have: `tell` is a method of files. A room that is not named has none."""
MOST_IN_DECISIONS = 43
"""The same of the decisions, which are records of their day."""
MOST_TURNS = {
    "of its own": (r"\bof (its|one's|their|our|his) own\b", 0),  # separate, or nothing
    "goes on": (r"\b(goes|go|gone|going|went) on\b", 0),  # continues
    "beside": (r"(?<![-\w`])besides?\b(?![-`:])", 0),  # next to, in addition to, other than
    "whatever": (r"\b(whatever|whichever)\b", 0),  # for any, regardless of
    "so is": (r"[.;] so (is|are) (?!that)", 0),  # the same holds for
    "of which": (r"\bof which\b", 0),  # whose
    "as it is to be": (r"\bas (it|they) (is|are) to be\b", 0),  # with its new ...
    "in the order in which": (r"in the order in which", 0),  # in order of
}
"""Turns of German word order to their pattern and the most of them in docstrings and pages; lower only."""
GENERATED = {
    "spec.md",
    "spec-sources.md",
    "spec-settings.md",
    "operations.md",
    "python.md",
    "metrics.md",
    "faults.md",
    "demands.md",
}
"""Pages made from the code, whose words are counted there."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions" and path.name not in GENERATED
    ),
]
MOST_WORDS_OF_A_PAGE = 2_500
MOST_WORDS = 35_500  # formats by tool and the orders of eleven connectors are 2,000 of them, SQL 4,000
LONGEST_SENTENCE = 30
MOST_LONG_SENTENCES = 0
"""Sentences of the pages that are longer."""
HIGHEST_MEDIAN = 16


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def found(text: str) -> Counter[str]:
    """Count the words of the list in a text."""
    return Counter({word: len(re.findall(pattern, text, re.IGNORECASE)) for word, pattern in WORDS.items()})


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, also those below constants and fields."""
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def room_count(room: str) -> int:
    """Count words and docstrings of a room of the code; modules outside of rooms are a room, too."""
    home = ROOT / "ebbtide"
    paths = list(home.glob("*.py") if room == "." else (home / room).rglob("*.py"))
    questions = [text for path in paths for text in docstrings(path) if text.startswith(QUESTIONS)]
    return sum(found(path.read_text(encoding="utf-8")).total() for path in paths) + len(questions)


@cache
def prose(path: Path) -> str:
    """A page without its code, its targets of links and its tables' lines of dashes."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"^\|[-|: ]+\|$", "", text, flags=re.MULTILINE)


def blocks(text: str) -> Iterator[str]:
    """Yield paragraphs, items of lists and cells of tables."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if paragraph.lstrip().startswith("#"):
            continue
        if paragraph.lstrip().startswith("|"):
            for line in paragraph.splitlines():
                yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line) if cell.strip())
        else:
            yield " ".join(paragraph.split())


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page's prose; code in backticks is one word, and a semicolon or a colon ends an idea, too."""
    for block in blocks(text):
        plain = re.sub(r"``.+?``|`[^`]*`", "CODE", block)
        yield from (part.strip() for part in re.split(r"(?<=[.?!;:])(?:\*\*)?\s+", plain) if part.strip())


def words(text: str) -> list[str]:
    return re.findall(r"\w[\w'.:/-]*", text)


ROOMS = [".", *sorted({path.relative_to(ROOT / "ebbtide").parts[0] for path in (ROOT / "ebbtide").glob("*/**/*.py")})]


@pytest.mark.parametrize("room", ROOMS)
def test_room_has_none_of_the_listed_words(room):
    assert room_count(room) == MOST_IN_ROOMS.get(room, 0)


def test_decisions_have_no_more_of_the_listed_words_than_before():
    counts = sum((found(prose(path)) for path in (ROOT / "docs" / "decisions").glob("*.md")), Counter())
    assert counts.total() <= MOST_IN_DECISIONS


@cache
def texts_to_turn() -> tuple[str, ...]:
    """Return the docstrings of the code and the pages, each on one line."""
    paths = (ROOT / "ebbtide").rglob("*.py")
    texts = [text for path in paths for text in docstrings(path)]
    texts += [prose(path) for path in PAGES if path.name != "CHANGELOG.md"]
    return tuple(" ".join(text.split()) for text in texts)


def turns(pattern: str) -> list[str]:
    """Find a turn in the docstrings and the pages, with the words around it."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return [
        text[max(0, found.start() - 40) : found.end() + 40]
        for text in texts_to_turn()
        for found in compiled.finditer(text)
    ]


@pytest.mark.parametrize("turn", MOST_TURNS)
def test_code_and_pages_have_no_more_of_a_turn_than_before(turn):
    pattern, most = MOST_TURNS[turn]
    found_turns = turns(pattern)
    assert len(found_turns) <= most, "\n".join(found_turns)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_page_has_none_of_the_listed_words(path):
    counts = found(prose(path)) - Counter(ALLOWED.get(name_of(path), {}))
    assert dict(counts) == {}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_page_has_no_sentence_with_a_question_as_its_subject(path):
    begun = [text for text in sentences(prose(path)) if text.startswith(QUESTIONS) and not text.endswith("?")]
    assert begun == []


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=name_of)
def test_page_is_short(path):
    assert len(words(prose(path))) <= MOST_WORDS_OF_A_PAGE


def test_documentation_is_short():
    # The pages of Python and of rooms repeat docstrings; those of metrics and faults repeat the texts that a user gets, that of demands is a list of tests.
    repeated = ("python.md", "metrics.md", "rooms.md", "faults.md", "demands.md")
    pages = [
        path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions" and path.name not in repeated
    ]
    assert sum(len(words(prose(path))) for path in pages) <= MOST_WORDS


def test_sentences_are_short():
    lengths = {text: len(words(text)) for path in PAGES for text in sentences(prose(path))}
    full = [length for text, length in lengths.items() if text.endswith(".")]
    assert statistics.median(full) <= HIGHEST_MEDIAN
    too_long = [text for text, length in lengths.items() if length > LONGEST_SENTENCE]
    assert len(too_long) <= MOST_LONG_SENTENCES, "\n".join(too_long)
