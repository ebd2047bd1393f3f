"""The house style as a check: long sentences and banned words in pages, help, errors and docstrings.

Pure functions extract passages (``from_markdown``, ``from_verbs``, ``docstrings`` and so on) and list the
sentences that break the style (``findings``). ``BANNED`` is the glossary. ``EXCEPTIONS`` has its own reasons.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MOST_WORDS: Final = 25
"""The longest sentence that is allowed."""

DOCS, HELP, ERROR, SHOWN, DOCSTRING = "docs", "help", "error", "shown", "docstring"
EVERYWHERE: Final = (DOCS, HELP, ERROR, SHOWN, DOCSTRING)
READ_BY_USERS: Final = (DOCS, HELP, ERROR, SHOWN)


@dataclass(frozen=True)
class Passage:
    """A text of a scope and its place: ``file:line``, or a command and its setting.

    ``is_sentence`` is False for cells of tables, whose length is not checked.
    """

    scope: str
    place: str
    text: str
    is_sentence: bool = True


@dataclass(frozen=True)
class Banned:
    """A regular expression, the words to write instead, an example, and the scopes where it is banned."""

    pattern: str
    instead: str
    example: str
    scopes: tuple[str, ...] = EVERYWHERE


UNITS: Final = r"(?:units?|tokens?|experts?|neurons?|heads?|layers?|groups?|matri(?:x|ces))"
MODAL: Final = r"(?:may |can |must |would )?"
WRITTEN: Final = (
    r"(?:files?|texts?|criteri(?:on|a)|config|configuration|documents?|headers?|recipes?|labels|reports?)"
)
PERSONS: Final = r"(?:budget|loss|network|zerolm|score|file|package|core|process)s?"

# fmt: off
BANNED: Final = (
    Banned(r"\bfe(?:els?|lt)\b", "gradient of the loss, Fisher information", "the loss feels it"),
    Banned(r"\bforet(?:old|ells?)\b", "predicted, estimated", "the foretold loss"),
    Banned(r"\btold\b|\btells?\b", "determined by, shows, contains, distinguishes", "as the text tells"),
    Banned(r"\bso many\b", "the number of ..., or its name", "of so many tokens"),
    Banned(r"\bas many(?! as\b)(?! \w+ as\b)(?! \w+ \w+ as\b)", "the same number of ...", "in as many bytes"),
    Banned(r"(?<!-)\bbeside\b", "compared with, next to, in addition to", "a child beside its parent"),
    Banned(r"\bsends\b|\bsent\b|\b(?:that|which|networks?|units?) send\b", "outputs, contributes, is routed",
           "what a unit sends"),
    Banned(r"\bweigh(?:s|ed|ing)?\b", "score, compare, weight, compute", "weighing units"),
    Banned(r"\bsolved again\b", "refitted by least squares", "the columns are solved again"),
    Banned(r"\b(?:models|parts) that see\b", "vision-language models", "of models that see"),
    Banned(r"\btypes of weights\b", "quantisation types", "types of weights"),
    Banned(r"\bmixtures?\b(?! of experts)", "mixture of experts, MoE", "experts of mixtures"),
    Banned(r"\btak(?:e|es|ing) the time of\b", "timing one layer", "taking the time of a layer"),
    Banned(r"\bwhat (?:is left|may (?:go|stay|leave)|leaves)\b"
           r"|\bwhat (?:goes|stays)\b(?! (?:in|on|wrong|with)\b)",
           "pruned, kept, remaining", "what is left of it"),
    Banned(rf"\b{UNITS} (?:that |which )?{MODAL}(?:leave|leaves|go|goes|left)\b(?! out\b)", "pruned, removed",
           "then tokens leave"),
    Banned(rf"\b{UNITS} (?:that |which ){MODAL}stays?\b", "kept", "the experts that stay"),
    Banned(r"\bwhat (?:\w+ ){1,3}(?:is|are) worth\b|\bworth (?:to|of)\b|\b(?:least|most|more) worth\b",
           "score, importance", "what units are worth"),
    Banned(r"\bpric(?:e|es|ed|ing)\b", "estimated loss increase; cost for params, MACs, bytes",
           "priced by a text", READ_BY_USERS),
    Banned(rf"\bpriced\b|\bprices? of (?:\w+ )?(?:cuts?|plans?|{UNITS})\b", "estimated loss increase",
           "the prices of cuts", (DOCSTRING,)),
    Banned(r"\bdrawn (?:at random|anew)\b|\b(?:weights?|networks?|architectures?|tokens|samples?|noise)"
           r" (?:that )?(?:(?:is|are|was|were) )?(?:ever )?drawn\b", "sampled", "tokens drawn from it"),
    Banned(r"\botherwise than\b|\bhas otherwise\b", "differs from", "stored otherwise than the parent"),
    Banned(r"\b(?:nobody|somebody)\b", "no one, or name who", "that nobody reads"),
    Banned(rf"\b{WRITTEN} (?:that )?says?\b", "contains, specifies, shows", "the header says so"),
    Banned(rf"\b{PERSONS} (?:cannot |does not )?knows?\b", "supports, accepts, depends on", "a budget knows"),
    Banned(r"\bReturn what\b", "Return and the name of the result", "Return what is kept.", (DOCSTRING,)),
    Banned(r"\bReturn how many\b", "Return the number of", "Return how many there are.", (DOCSTRING,)),
)
# fmt: on
"""The glossary of the house, as far as a pattern can hold it without false alarms."""

EXCEPTIONS: Final[Mapping[str, str]] = {
    "sizes are planned: prices (losses estimated": "prices is a value of --plan",
    "prices of cuts": "the name of a cache",
    'class="beside"': "a class of the page's style",
}
"""Fragments of sentences that may break the style, each with the reason; one that is not needed fails."""


def findings(passages: Iterable[Passage]) -> list[str]:
    """Return the broken rules, one line each; passages with a fragment of ``EXCEPTIONS`` included."""
    return [line for passage in passages for line in (*long_sentences(passage), *banned_words(passage))]


def long_sentences(passage: Passage) -> Iterator[str]:
    """Yield a finding for each sentence of more than ``MOST_WORDS`` words; docstrings have no limit."""
    if passage.scope == DOCSTRING or not passage.is_sentence:
        return
    for sentence in sentences(passage.text):
        if (count := words(sentence)) > MOST_WORDS:
            yield f"{passage.scope} {passage.place}: {count} words: {sentence}"


def banned_words(passage: Passage) -> Iterator[str]:
    """Yield a finding for each sentence that has a pattern of ``BANNED`` for its scope."""
    for sentence in sentences(passage.text):
        for banned in BANNED:
            if passage.scope in banned.scopes and (hit := re.search(banned.pattern, sentence, re.IGNORECASE)):
                yield f"{passage.scope} {passage.place}: {hit[0]!r} (write: {banned.instead}): {sentence}"


END: Final = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bet al\.)(?<!\.\.\.)[\"')*_\]]*\s+")


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences at full stops, those of abbreviations apart."""
    return [part for part in END.split(" ".join(text.split())) if part]


def words(sentence: str) -> int:
    """Count the words of a sentence; a piece of code is one word, signs are none."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def prose(text: str) -> str:
    """Return a text in one line, with CODE for each piece of code and without the addresses of links."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "CODE", " ".join(text.split()))
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


MARKER: Final = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+|^#+\s+")
FENCE: Final = re.compile(r"^([ \t]*)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)


def from_markdown(file: str, text: str) -> Iterator[Passage]:
    """Yield the paragraphs, headings, items and cells of a page, without code, comments and addresses."""
    for apart in (re.compile(r"<!--.*?-->", re.DOTALL), FENCE):
        text = apart.sub(lambda found: "\n" * found[0].count("\n"), text)
    block: list[str] = []
    start, is_list = 1, False

    def passage() -> Iterator[Passage]:
        if block and (line := prose(" ".join(block))):
            yield Passage(DOCS, f"{file}:{start}", line)
        block.clear()

    for number, line in enumerate(text.splitlines(), 1):
        is_code = line.startswith("    ") and not block and not is_list
        if line.lstrip().startswith("|"):
            yield from passage()
            is_list = is_list and line.startswith(" ")
            for cell in re.split(r"(?<!\\)\|", line):
                if re.search(r"\w", cell):
                    yield Passage(DOCS, f"{file}:{number}", prose(cell), is_sentence=False)
        elif not line.strip() or is_code or line.startswith(":::"):
            yield from passage()
        else:
            marker = MARKER.match(line)
            if marker:
                yield from passage()
            is_list = bool(marker) or (is_list and (bool(block) or line.startswith(" ")))
            start = start if block else number
            block.append(line[marker.end() :] if marker else line)
            if line.startswith("#"):
                yield from passage()
    yield from passage()


def from_verbs(verbs: Mapping[str, Any]) -> Iterator[Passage]:
    """Yield summaries, help, notes and captions of examples of verbs."""
    for name, verb in verbs.items():
        yield Passage(HELP, f"{name}: summary", prose(verb.summary))
        request = verb.request
        yield Passage(HELP, f"{name}: notes", prose(request.notes))
        for command, caption in request.examples:
            yield Passage(HELP, f"{name}: example {command!r}", prose(caption))
        for setting in (*request.settings(), *request.output()):
            yield Passage(HELP, f"{name} {setting.flag}", prose(setting.help))


def from_registry(registry: Any) -> Iterator[Passage]:
    """Yield sources and help of registered spaces or scores."""
    for name in registry.names():
        entry = registry.entry(name)
        yield Passage(HELP, f"{name}: source", prose(entry.source))
        for setting in entry.options:
            yield Passage(HELP, f"{name} {setting.flag}", prose(setting.help))


def docstrings(file: str, source: str) -> Iterator[Passage]:
    """Yield the docstrings of a module, of its parts, and those below assignments."""
    for node in in_order(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for part in node.body:
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                    yield Passage(DOCSTRING, f"{file}:{part.lineno}", prose(str(part.value.value)))


def messages(file: str, source: str) -> Iterator[Passage]:
    """Yield the literal messages of errors that a module raises; a value within one counts as a word."""
    for node in in_order(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for text in _literals(node.exc):
                yield Passage(ERROR, f"{file}:{node.lineno}", prose(text))


def shown(file: str, source: str) -> Iterator[Passage]:
    """Yield the other literals of several words: reports, progress, captions; parts of sentences, too."""
    tree = ast.parse(source)
    docstrings_and_errors = [node for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.Raise)]
    apart = {
        id(part)
        for node in docstrings_and_errors
        for part in ([node.value] if isinstance(node, ast.Expr) else ast.walk(node))
    }
    for node in in_order(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
        if is_text and len(node.value.split()) > 1:
            yield Passage(SHOWN, f"{file}:{node.lineno}", prose(node.value), is_sentence=False)


def notes(file: str, text: str) -> Iterator[Passage]:
    """Yield the reasons of a family's document, or of ``refused.json``."""

    def walk(value: Any, is_reason: bool) -> Iterator[str]:
        if isinstance(value, str):
            yield from [value] * is_reason
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, is_reason or name in ("note", "hidden_note"))
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner, is_reason)

    for reason in walk(json.loads(text), file.endswith("refused.json")):
        yield Passage(ERROR, file, prose(reason))


def in_order(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a module by their first line."""
    return sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0))


def _literals(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _literals(child)
