"""Languages: held against Python's `re`, brute force over short texts, a JSON Schema validator and plain arithmetic."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Final, TypeAlias

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.languages import (
    Language,
    Lengths,
    PatternInvalid,
    ending_with,
    included,
    is_empty,
    matches,
    parse_glob,
    parse_regex,
    pattern_of,
    starting_with,
)
from app.core.languages.automaton import MAX_REMEMBERED
from app.core.languages.expression import MAX_POSITIONS
from app.core.languages.regex import MAX_NESTING, MAX_PATTERN_CHARS, MAX_REPEAT
from app.core.steps import MAX_STEPS, OutOfSteps, Steps

WIDEST: Final = 2**53 - 1
EVERY_LENGTH: Final = Lengths(0, WIDEST)


def holds(language: Language, text: str) -> bool:
    return matches(language, text, Steps())


def within(child: Language | Sequence[Language], parent: Language | None, **lengths: Lengths) -> bool:
    children = [child] if isinstance(child, Language) else child
    inner, outer = lengths.get("inner", EVERY_LENGTH), lengths.get("outer", EVERY_LENGTH)
    return included(children, inner, parent, outer, Steps())


def texts(alphabet: str, longest: int) -> list[str]:
    return ["".join(chars) for length in range(longest + 1) for chars in product(alphabet, repeat=length)]


def steps_of(question: Callable[[Steps], object]) -> int:
    steps = Steps()
    question(steps)
    return MAX_STEPS - steps.left


# --- generated patterns -----------------------------------------------------------------------------------

Spellings: TypeAlias = tuple[str, str]
"""One expression in RE2's syntax and in Python's."""

ALPHABET: Final = "ab-\n\U0001f600"
SHORT_TEXTS: Final = texts(ALPHABET, 2) + texts("ab-", 4)

A_AND_B: Final = texts("a", 10) + ["b" * length for length in range(1, 11)] + ["ab", "ba", "abab", "bab", "aab"]

LEAVES: Final[list[Spellings]] = [
    ("a", "a"),
    ("b", "b"),
    ("-", "-"),
    ("\n", "\n"),
    ("", ""),
    (".", "."),
    (r"\.", r"\."),
    (r"\x61", "a"),
    (r"\x{1F600}", "\U0001f600"),
    (r"\141", "a"),
    (r"\12", r"\n"),
    (r"\Qa-\E", "a-"),
    ("[ab]", "[ab]"),
    ("[^a]", "[^a]"),
    ("[^ab\\n]", r"[^ab\n]"),
    ("[]a-]", r"[\]a\-]"),
    ("[a-\\x{1f600}]", "[a-\U0001f600]"),
    (r"[\s-]", r"[\t\n\f\r \-]"),
    (r"[^\W\d]", r"[A-Z_a-z]"),
    ("[[:alpha:]]", "[A-Za-z]"),
    ("[^[:^punct:]b]", r"[!-/:-@\[-`{-~]"),
    (r"\d", r"\d"),
    (r"\D", r"\D"),
    (r"\w", r"\w"),
    (r"\W", r"\W"),
    (r"\s", r"[\t\n\f\r ]"),
    (r"\S", r"[^\t\n\f\r ]"),
]

REPEATS: Final = ("*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,3}", "{0}", "{2,}?")


def _grown(inner: st.SearchStrategy[Spellings]) -> st.SearchStrategy[Spellings]:
    repeats, opened = st.sampled_from(REPEATS), st.sampled_from(("(?:", "("))
    return st.one_of(
        st.builds(lambda one, other: (one[0] + other[0], one[1] + other[1]), inner, inner),
        st.builds(
            lambda one, other, group: (f"{group}{one[0]}|{other[0]})", f"(?:{one[1]}|{other[1]})"),
            inner,
            inner,
            opened,
        ),
        st.builds(
            lambda one, times, group: (f"{group}{one[0]}){times}", f"(?:{one[1]}){times}"), inner, repeats, opened
        ),
    )


def patterns(leaves: Iterable[Spellings] = LEAVES, largest: int = 8) -> st.SearchStrategy[Spellings]:
    return st.recursive(st.sampled_from([*leaves]), _grown, max_leaves=largest)


@given(pattern=patterns())
def test_a_regex_holds_what_pythons_own_engine_matches(pattern: Spellings) -> None:
    language, expected = parse_regex(pattern[0]), re.compile(pattern[1], re.ASCII)
    assert [text for text in SHORT_TEXTS if holds(language, text) != bool(expected.fullmatch(text))] == []


@given(pattern=st.text(st.sampled_from("ab-^$.|()[]{}*+?\\:,12dQEx<P=!"), max_size=12))
def test_whatever_is_written_is_read_or_refused_in_a_sentence(pattern: str) -> None:
    try:
        language = parse_regex(pattern)
    except PatternInvalid as error:
        flaw = error.detail
    else:
        flaw = f"none, and {pattern_of(language)} is as long as it may be"
    assert 0 < len(flaw) < 200


@given(pattern=patterns())
def test_the_portable_pattern_finds_what_the_language_holds(pattern: Spellings) -> None:
    language = parse_regex(pattern[0])
    portable = pattern_of(language)
    rust = jsonschema_rs.validator_for({"pattern": portable}, pattern_options=jsonschema_rs.RegexOptions())
    # To Python alone `$` is not the very end.
    python = re.compile(portable[:-1] + r"\Z" if _closed(portable) else portable)
    for text in SHORT_TEXTS:
        assert holds(language, text) == rust.is_valid(text) == bool(python.search(text))


@given(pattern=patterns())
def test_the_portable_pattern_is_a_spelling_of_the_same_language(pattern: Spellings) -> None:
    language = parse_regex(pattern[0])
    portable = pattern_of(language)
    spelt = re.sub(r"\\u(....)", r"\\x{\1}", portable)
    opening, closing = "" if portable[:1] == "^" else r"[\s\S]*", "" if _closed(portable) else r"[\s\S]*"
    again = parse_regex(f"{opening}{spelt}{closing}")
    assert within(language, again)
    assert within(again, language)


def _closed(portable: str) -> bool:
    return portable.endswith("$") and not portable.endswith(r"\$")


@pytest.mark.parametrize("inner", REPEATS)
@pytest.mark.parametrize("outer", REPEATS)
def test_a_repeat_of_a_repeat_is_neither_more_nor_less(inner: str, outer: str) -> None:
    for part in ("a", "a?b"):
        pattern = f"(?:(?:{part}){inner}){outer}"
        language, expected = parse_regex(pattern), re.compile(pattern)
        assert [text for text in A_AND_B if holds(language, text) != bool(expected.fullmatch(text))] == []


# --- what a regex means -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, held, not_held",
    [
        ("", [""], ["a", "\n"]),
        ("a", ["a"], ["", "aa", "A", "a\n", "\na", "a\x00"]),
        ("^a$", ["a"], ["^a$", "a\n"]),
        ("^a|b$", ["a", "b"], ["ab", "a\n"]),
        ("^a$|^b$", ["a", "b"], ["ab"]),
        ("^$", [""], ["\n"]),
        ("a|", ["a", ""], ["aa"]),
        ("(|a)b", ["b", "ab"], ["a"]),
        ("(a)(?:b)(?P<one>c)(?<two>d)", ["abcd"], ["abc"]),
        ("a.c", ["abc", "a\rc", "a\x00c", "a\u2028c", "a\U0001f600c"], ["a\nc", "ac"]),
        ("a*?b+?c??", ["b", "aabbc"], ["aac"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,3}", ["a", "aaa"], ["", "aaaa"]),
        ("a{0}b", ["b"], ["ab"]),
        ("a{", ["a{"], ["a"]),
        ("a{}", ["a{}"], ["a"]),
        ("a{b}", ["a{b}"], ["ab"]),
        ("a{1", ["a{1"], ["a"]),
        ("a{01}", ["a{01}"], ["a"]),
        ("{", ["{"], [""]),
        ("a]}", ["a]}"], ["a"]),
        (r"\d\w\s", ["1_ ", "0a\f"], ["\u0661a ", "1\u00e9 ", "1a\v", "1a\u00a0"]),
        (r"\D\W\S", ["a \v", "\n\n\u00a0"], ["1 a", "aaa", "a  "]),
        (r"\a\f\t\n\r\v", ["\a\f\t\n\r\v"], ["aftnrv"]),
        (r"\x41\x{42}\x{000043}\x{10FFFF}", ["ABC\U0010ffff"], ["ABC"]),
        (r"\101\0\12\08\777", ["A\x00\n\x008\u01ff"], ["A"]),
        (r"\.\*\\\/\-\_\ \"", ['.*\\/-_ "'], ['a*\\/-_ "']),
        (r"\Q.*\E+", [".*", ".***"], ["", ".*.*", "ab"]),
        (r"\Qa\b(", [r"a\b("], ["a"]),
        (r"a\Q\Eb", ["ab"], ["a"]),
        ("[abc]", ["a", "c"], ["", "d", "ab"]),
        ("[^abc]", ["d", "\n", "\U0010ffff"], ["a", ""]),
        ("[]a]", ["]", "a"], ["[", ""]),
        ("[^]a]", ["[", "b"], ["]", "a"]),
        ("[a^]", ["a", "^"], ["b"]),
        ("[a-c-e]", ["b", "-", "e"], ["d"]),
        ("[-a]", ["-", "a"], ["b"]),
        ("[a-]", ["-", "a"], ["b"]),
        (r"[\d-z]", ["5", "-", "z"], ["a"]),
        ("[+--]", ["+", ",", "-"], ["."]),
        (r"[\]\-\\\n\x41\x{42}\103]", ["]", "-", "\\", "\n", "A", "B", "C"], ["x", "n", "["]),
        ("[.*+?(){}|$]", [".", "*", "$", "|"], ["a", "\\"]),
        ("[a[b]]", ["a]", "[]", "b]"], ["a", "b"]),
        ("[a&&b]", ["a", "&", "b"], ["&&"]),
        (r"[\D5]", ["a", "5"], ["4"]),
        (r"[^\d\s]", ["a"], ["5", " "]),
        ("[[:alnum:]][[:alpha:]][[:ascii:]]", ["1a\x7f", "zZ\x00"], ["_aa", "11a", "1a\x80"]),
        ("[[:blank:]][[:cntrl:]][[:digit:]]", ["\t\x7f0", " \x001"], ["\n\x000", " a1"]),
        ("[[:graph:]][[:lower:]][[:print:]]", ["!a ", "~z~"], [" a ", "!A ", "!a\x7f"]),
        ("[[:punct:]][[:space:]][[:upper:]]", ["_\vA", "@ Z"], ["a A", "_\u00a0A", "_ a"]),
        ("[[:word:]][[:xdigit:]]", ["_f", "9F"], ["-f", "_g"]),
        ("[[:^alpha:]_]", ["1", "_", "\u00e9"], ["a", "Z"]),
        ("[^[:^alpha:]]", ["a"], ["1"]),
    ],
)
def test_a_pattern_means_what_it_means_to_re2(pattern: str, held: list[str], not_held: list[str]) -> None:
    language = parse_regex(pattern)
    assert {text: holds(language, text) for text in held} == dict.fromkeys(held, True)
    assert {text: holds(language, text) for text in not_held} == dict.fromkeys(not_held, False)


NO_CHARS: Final = "surrogates are no characters"
ANCHOR: Final = "whole text must match"


@pytest.mark.parametrize(
    "pattern, flaw",
    [
        ("(?i)a", "flags"),
        ("a(?i:b)", "flags"),
        ("(?s-i:b)", "flags"),
        ("(?-s)", "flags"),
        (r"\bword", "word boundaries"),
        (r"a\B", "word boundaries"),
        (r"\Aa", ANCHOR),
        (r"a\z", ANCHOR),
        (r"a\Z", ANCHOR),
        ("a^b", ANCHOR),
        ("a$b", ANCHOR),
        ("(^a)", ANCHOR),
        ("(a$)", ANCHOR),
        ("(a|^b)", ANCHOR),
        ("^^a", ANCHOR),
        ("a$$", ANCHOR),
        ("$a", ANCHOR),
        ("a^", ANCHOR),
        ("^*", "nothing to repeat"),
        ("a$*", ANCHOR),
        (r"(a)\1", "back-references"),
        (r"(?P<n>a)(?P=n)", "back-references"),
        (r"(?<n>a)\k<n>", "back-references"),
        (r"a\g{1}", "back-references"),
        (r"\8", "back-references"),
        ("(?=a)", "look-around"),
        ("(?!a)", "look-around"),
        ("(?<=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        ("(?>a)", "atomic"),
        ("a*+", "possessive"),
        ("a++", "possessive"),
        ("a?+", "possessive"),
        ("a{2}+", "possessive"),
        ("a**", "can't be repeated"),
        ("a*??", "can't be repeated"),
        ("a{2}{3}", "can't be repeated"),
        ("a*{2}", "can't be repeated"),
        ("*a", "nothing to repeat"),
        ("+", "nothing to repeat"),
        ("a|?", "nothing to repeat"),
        ("(*a)", "nothing to repeat"),
        ("{2}", "nothing to repeat"),
        ("a|{2,}", "nothing to repeat"),
        ("a{,5}", "lower bound"),
        ("a{3,2}", "above its upper bound"),
        ("a{1001}", str(MAX_REPEAT)),
        ("a{0,1001}", str(MAX_REPEAT)),
        ("a{1001,}", str(MAX_REPEAT)),
        (f"a{{{'9' * 900}}}", str(MAX_REPEAT)),
        ("(?#a)", "comments"),
        ("(?R)", "recursion"),
        ("(?P>n)", "recursion"),
        ("(?1)", "recursion"),
        ("(?|a)", "kind of group"),
        ("(?'n'a)", "kind of group"),
        ("(?(1)a|b)", "kind of group"),
        ("(?", "kind of group"),
        ("(?<1n>a)", "name"),
        ("(?P<>a)", "name"),
        ("(?P<n", "name"),
        ("(?<n>a)(?P<n>b)", "same name"),
        (r"\pL", "properties of Unicode"),
        (r"\P{Greek}", "properties of Unicode"),
        (r"[\p{L}]", "properties of Unicode"),
        (r"\C", "single bytes"),
        (r"\y", "escape is unknown"),
        (r"\u0041", "escape is unknown"),
        (r"\N{DOT}", "escape is unknown"),
        (r"\E", "escape is unknown"),
        (r"\R", "escape is unknown"),
        (r"\X", "escape is unknown"),
        ("\\\u00e9", "escape is unknown"),
        (r"[\Qa\E]", "escape is unknown"),
        (r"[\b]", "word boundaries"),
        (r"[a-\d]", "escape is unknown"),
        ("a\\", "ends after a backslash"),
        ("[a\\", "ends after a backslash"),
        (r"\x", "hexadecimal"),
        (r"\x4", "hexadecimal"),
        (r"\x{}", "hexadecimal"),
        (r"\x{41", "hexadecimal"),
        (r"\x{4G}", "hexadecimal"),
        (r"\x{110000}", "U+10FFFF"),
        (r"\x{D800}", NO_CHARS),
        (r"[\x{DFFF}]", NO_CHARS),
        (r"[a-\x{DC00}]", NO_CHARS),
        ("\ud800", NO_CHARS),
        ("[\udfff]", NO_CHARS),
        ("[", "not closed"),
        ("[]", "not closed"),
        ("[^]", "not closed"),
        ("[a", "not closed"),
        ("[a-", "not closed"),
        ("[z-a]", "backwards"),
        (r"[^\d\D]", "empty"),
        (r"[^\x00-\x{10FFFF}]", "empty"),
        ("[[:nope:]]", "name"),
        ("[[:ALPHA:]]", "[:"),
        ("[[:alpha]", "[:"),
        ("[+-[:digit:]]", "[:"),
        ("(a", "not closed"),
        ("((a)", "not closed"),
        ("a)", "closes nothing"),
        (")", "closes nothing"),
    ],
)
def test_what_has_no_clear_meaning_is_refused_and_named(pattern: str, flaw: str) -> None:
    with pytest.raises(PatternInvalid) as refused:
        parse_regex(pattern)
    assert flaw in refused.value.detail
    assert len(refused.value.detail) < 200


def test_a_refusal_names_the_place_and_repeats_nothing_of_the_pattern() -> None:
    with pytest.raises(PatternInvalid) as refused:
        parse_regex("s3cr3t(?=s3cr3t)")
    assert "(at character 7)" in refused.value.detail
    assert "s3cr3t" not in refused.value.detail


# --- characters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, lookalike",
    [
        ("k", "\u212a"),
        ("K", "\u212a"),
        ("[A-Za-z]", "\u212a"),
        (r"\w", "\u212a"),
        ("s", "\u017f"),
        (r"\.", "\uff0e"),
        ("/", "\uff0f"),
        (r"\d", "\uff11"),
        ("\u00e9", "e\u0301"),
        ("e\u0301", "\u00e9"),
        ("\u00c5", "\u212b"),
        ("a", "\u0430"),
        ("a", "a\u200b"),
    ],
)
def test_characters_are_code_points_and_nothing_folds_them(pattern: str, lookalike: str) -> None:
    assert not holds(parse_regex(pattern), lookalike)
    assert holds(parse_regex(r"\Q" + lookalike), lookalike)


@pytest.mark.parametrize("char", ["\x00", "\n", "\x7f", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"])
def test_every_character_counts_as_one(char: str) -> None:
    anything = parse_regex(r"[\s\S]")
    assert holds(anything, char)
    assert not holds(anything, char * 2)
    assert not holds(parse_regex(f"[^{char}]"), char)
    assert within(parse_regex(rf"\Q{char * 3}"), None, outer=Lengths(3, 3))


def test_surrogates_are_in_no_language_and_their_neighbours_are_next_to_each_other() -> None:
    around = parse_regex(r"[\x{D7FF}-\x{E000}]")
    assert not any(holds(language, "\ud800") for language in (around, parse_regex(r"[\s\S]*"), parse_regex("[^a]")))
    assert within(around, parse_regex(r"\x{D7FF}|\x{E000}"))
    assert within(parse_regex(r"[^\x{D7FF}]"), parse_regex(r"[\x00-\x{D7FE}\x{E000}-\x{10FFFF}]"))
    assert within(starting_with(""), parse_regex(r"[\x00-\x{D7FF}\x{E000}-\x{10FFFF}]*"))


@pytest.mark.parametrize("bound", [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFE])
def test_a_set_ends_at_its_bounds_exactly(bound: int) -> None:
    low, high = parse_regex(rf"[\x00-\x{{{bound:x}}}]"), parse_regex(rf"[^\x00-\x{{{bound:x}}}]")
    last, first = chr(bound), chr(bound + 1 if bound != 0xD7FF else 0xE000)
    for language, held, not_held in ((low, last, first), (high, first, last)):
        pattern = jsonschema_rs.validator_for({"pattern": pattern_of(language)})
        assert holds(language, held)
        assert pattern.is_valid(held)
        assert not holds(language, not_held)
        assert not pattern.is_valid(not_held)
    assert is_empty([low, high], EVERY_LENGTH, Steps())


# --- globs, prefixes, suffixes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "glob, held, not_held",
    [
        ("/data/*.pdf", ["/data/.pdf", "/data/a.b.pdf", "/data/\u00e9\U0001f600.pdf"], ["/data/a/b.pdf", "/data/apdf"]),
        ("*", ["", "a b"], ["/", "a\nb", "\x00", "\x1f", "\x7f", "\x85", "\x9f"]),
        ("a*b*c", ["abc", "axbxc", "abbcc"], ["ac", "a/bc"]),
        ("a?[b]{c}\\*", ["a?[b]{c}\\", "a?[b]{c}\\x"], ["ax[b]{c}\\", "a?b{c}\\"]),
        ("(a|b).^$+*", ["(a|b).^$+"], ["a", "(a|b)x^$+"]),
        ("a\n/\x00*", ["a\n/\x00", "a\n/\x00b"], ["a/\x00"]),
        ("", [""], ["a"]),
    ],
)
def test_a_glob_is_literal_but_for_its_stars(glob: str, held: list[str], not_held: list[str]) -> None:
    language = parse_glob(glob)
    assert {text: holds(language, text) for text in held} == dict.fromkeys(held, True)
    assert {text: holds(language, text) for text in not_held} == dict.fromkeys(not_held, False)


@pytest.mark.parametrize("glob", ["**", "a/**/b", "***", "\ud800", "a" * (MAX_PATTERN_CHARS + 1)])
def test_a_glob_without_a_clear_meaning_is_refused(glob: str) -> None:
    with pytest.raises(PatternInvalid) as refused:
        parse_glob(glob)
    assert 0 < len(refused.value.detail) < 200


STAR_OR_CHARS: Final = st.text(st.sampled_from("*/a.[\n\x85"), max_size=6)


@given(glob=STAR_OR_CHARS, text=STAR_OR_CHARS)
def test_globs_match_as_written_out(glob: str, text: str) -> None:
    if "**" not in glob:
        expected = "[^/\x00-\x1f\x7f-\x9f]*".join(map(re.escape, glob.split("*")))
        assert holds(parse_glob(glob), text) == bool(re.fullmatch(expected, text))


@given(affix=st.text(st.sampled_from("ab*.\n"), max_size=3), text=st.text(st.sampled_from("ab*.\n"), max_size=5))
def test_prefixes_and_suffixes_are_where_python_finds_them(affix: str, text: str) -> None:
    starting, ending = starting_with(affix), ending_with(affix)
    assert holds(starting, text) == text.startswith(affix)
    assert holds(ending, text) == text.endswith(affix)
    for language in (starting, ending):
        pattern = jsonschema_rs.validator_for({"pattern": pattern_of(language)})
        assert pattern.is_valid(text) == holds(language, text)


# --- inclusion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "child, parent, is_within",
    [
        (parse_regex("[a-c]+"), parse_regex("[a-z]*"), True),
        (parse_regex("[a-z]*"), parse_regex("[a-z]+"), False),
        (parse_regex("(a|b)*"), parse_regex("(a*b*)*"), True),
        (parse_regex("(a*b*)*"), parse_regex("[ab]*"), True),
        (parse_regex("a(ba)*"), parse_regex("(ab)*a"), True),
        (parse_regex("(ab)*a"), parse_regex("a(ba)*"), True),
        (parse_regex("(aa)*"), parse_regex("(aaa)*"), False),
        (parse_regex("(a{6})*"), parse_regex("(aa)*"), True),
        (parse_regex("a{2,3}"), parse_regex("a{1,4}"), True),
        (parse_regex("a{2,5}"), parse_regex("a{1,4}"), False),
        (parse_regex("x*"), parse_regex("x*?"), True),
        (parse_regex("a|b|c"), parse_regex("[abc]"), True),
        (parse_regex(".*"), parse_regex(r"[\s\S]*"), True),
        (parse_regex(r"[\s\S]*"), parse_regex(".*"), False),
        (parse_regex("k"), parse_regex("[k\u212a]"), True),
        (parse_regex("[k\u212a]"), parse_regex("[kK]"), False),
        (parse_regex(r"[a-z]+@acme\.com"), parse_regex(r"[a-z.]+@[a-z]+\.com"), True),
        (parse_regex(r"[a-z]+@acme.com"), parse_regex(r"[a-z.]+@[a-z]+\.com"), False),
        (parse_regex(r"20\d\d-0[1-9]"), parse_regex(r"\d{4}-\d{2}"), True),
        (parse_glob("/data/a/*.pdf"), parse_glob("/data/*/*.pdf"), True),
        (parse_glob("/data/*.pdf"), parse_glob("/data/*"), True),
        (parse_glob("/data/*"), parse_glob("/data/*.pdf"), False),
        (parse_glob("/*/*"), parse_glob("/*"), False),
        (parse_glob("*"), parse_regex("[^/]*"), True),
        (parse_regex("[^/]*"), parse_glob("*"), False),
        (parse_glob("*a*"), parse_glob("*"), True),
        (starting_with("/data/"), starting_with("/data"), True),
        (starting_with("/data"), starting_with("/data/"), False),
        (starting_with("/data/"), parse_glob("/data/*"), False),
        (parse_glob("/data/*"), starting_with("/data/"), True),
        (ending_with("b.pdf"), ending_with(".pdf"), True),
        (ending_with(".pdf"), ending_with("b.pdf"), False),
        (starting_with("a"), ending_with("a"), False),
        (starting_with("a"), parse_regex(r"a[\s\S]+"), False),
        (starting_with("ab"), parse_regex(r"a[\s\S]+"), True),
        (starting_with(""), ending_with(""), True),
        (parse_regex(r"ab[\s\S]*"), starting_with("ab"), True),
        (starting_with("ab"), parse_regex("ab.*"), False),
        (parse_regex("a"), None, True),
        ([starting_with("/a/"), ending_with(".txt")], parse_regex(r"/a/[\s\S]*\.txt"), True),
        # What a prefix and a suffix share may overlap, and nothing else may be in their place.
        ([starting_with("aba"), ending_with("bab")], parse_regex(r"aba[\s\S]*bab"), False),
        ([starting_with("aba"), ending_with("bab")], parse_regex(r"abab|aba[\s\S]*bab"), True),
        ([starting_with("aab"), ending_with("baa")], parse_regex(r"aab[\s\S]*baa"), False),
        ([starting_with("aab"), ending_with("baa")], parse_regex(r"aab(?:aa|[\s\S]*baa)"), True),
        ([starting_with("a"), parse_glob("*")], starting_with("a"), True),
        ([parse_glob("*a"), parse_glob("b*")], parse_glob("b*a"), True),
        ([parse_glob("*a"), parse_glob("a*")], parse_glob("a*a"), False),
        ([starting_with("a"), starting_with("b")], parse_regex("never"), True),
        ([], parse_regex(r"[\s\S]*"), True),
        ([], parse_regex(".*"), False),
        ([], parse_regex("[^\U0010ffff]*"), False),
        ([], parse_regex(r"[\x00-\x{D7FF}]*"), False),
        ([], None, True),
    ],
)
def test_inclusion_is_decided(child: Language | list[Language], parent: Language | None, is_within: bool) -> None:
    assert within(child, parent) is is_within


BOTH_ALPHABET: Final = "ab\nz"
"""z for whatever is none of the others."""

PLAIN_LEAVES: Final[list[Spellings]] = [
    (char, char) for char in ("a", "b", "z", ".", "[ab]", "[^a]", "[^b\\n]", "", r"[\s\S]", r"[\s\S]*")
]
languages: Final = patterns(PLAIN_LEAVES, largest=5)
small_lengths: Final = st.builds(Lengths, st.integers(0, 3), st.integers(0, 3))
UP_TO_THREE: Final = texts(BOTH_ALPHABET, 3)


def _held(pattern: Spellings, candidates: Iterable[str]) -> set[str]:
    expected = re.compile(pattern[1])
    return {text for text in candidates if expected.fullmatch(text)}


def _of_lengths(found: set[str], lengths: Lengths) -> set[str]:
    return {text for text in found if lengths.least <= len(text) <= lengths.most}


@given(
    child=st.lists(languages, max_size=3),
    child_lengths=small_lengths,
    parent=st.none() | languages,
    parent_lengths=small_lengths,
)
def test_inclusion_of_bounded_texts_is_what_counting_them_says(
    child: list[Spellings], child_lengths: Lengths, parent: Spellings | None, parent_lengths: Lengths
) -> None:
    inner = _of_lengths(set(UP_TO_THREE).intersection(*(_held(one, UP_TO_THREE) for one in child)), child_lengths)
    outer = _of_lengths(set(UP_TO_THREE) if parent is None else _held(parent, UP_TO_THREE), parent_lengths)
    children = [parse_regex(one[0]) for one in child]
    asked = None if parent is None else parse_regex(parent[0])
    assert included(children, child_lengths, asked, parent_lengths, Steps()) == (inner <= outer)
    assert is_empty(children, child_lengths, Steps()) == (not inner)


AB_LEAVES: Final[list[Spellings]] = [(char, char) for char in ("a", "b", "[ab]", "")]
UP_TO_NINE: Final = texts("ab", 9)


@given(child=patterns(AB_LEAVES, largest=4), parent=patterns(AB_LEAVES, largest=4))
def test_what_is_not_included_has_a_text_that_shows_it(child: Spellings, parent: Spellings) -> None:
    inner, outer = parse_regex(child[0]), parse_regex(parent[0])
    assume(inner.expression.size + outer.expression.size <= 7)  # so that a short text shows it
    wider = any(re.fullmatch(child[1], text) and not re.fullmatch(parent[1], text) for text in UP_TO_NINE)
    assert within(inner, outer) != wider


@given(pattern=languages)
def test_every_language_is_within_itself_and_everything_however_it_is_written(pattern: Spellings) -> None:
    language, again = parse_regex(pattern[0]), parse_regex(f"(?:{pattern[0]}){{1}}|(?:{pattern[0]})")
    assert within(language, language)
    assert within(again, language)
    assert within(language, again)
    assert within(language, starting_with(""))


# --- lengths ----------------------------------------------------------------------------------------------

Unary: TypeAlias = tuple[str, frozenset[int]]
"""A pattern of one letter, and the lengths up to LONGEST that its texts have."""

LONGEST: Final = 40


def _sums(one: frozenset[int], other: frozenset[int]) -> frozenset[int]:
    return frozenset(left + right for left in one for right in other if left + right <= LONGEST)


def _closure(lengths: frozenset[int]) -> frozenset[int]:
    found, grown = frozenset({0}), frozenset({0}) | lengths
    while found != grown:
        found, grown = grown, grown | _sums(grown, lengths)
    return found


def _longer(inner: st.SearchStrategy[Unary]) -> st.SearchStrategy[Unary]:
    return st.one_of(
        st.builds(lambda one, other: (one[0] + other[0], _sums(one[1], other[1])), inner, inner),
        st.builds(lambda one, other: (f"(?:{one[0]}|{other[0]})", one[1] | other[1]), inner, inner),
        st.builds(lambda one: (f"(?:{one[0]})*", _closure(one[1])), inner),
    )


unary: Final = st.recursive(
    st.integers(1, 5).map(lambda times: (f"a{{{times}}}", frozenset({times}))), _longer, max_leaves=5
)


@given(pattern=unary, least=st.integers(0, LONGEST), most=st.integers(0, LONGEST))
def test_lengths_are_told_apart_to_the_last_character(pattern: Unary, least: int, most: int) -> None:
    language, lengths = parse_regex(pattern[0]), pattern[1]
    has_some = any(least <= length <= most for length in lengths)
    assert is_empty([language], Lengths(least, most), Steps()) != has_some
    outside = within(language, None, inner=Lengths(0, LONGEST), outer=Lengths(least, most))
    assert outside == all(least <= length <= most for length in lengths)


@pytest.mark.parametrize(
    "pattern, least, most, empty",
    [
        ("(ab)*", 10**15, 10**15, False),
        ("(ab)*", 10**15 + 1, 10**15 + 1, True),
        ("(ab)*", 10**15 + 1, 10**15 + 2, False),
        ("(a{3})*|(a{5})*", 10**15 + 2, 10**15 + 2, False),  # divisible by 3
        ("(a{3})*|(a{5})*", 10**15 + 1, 10**15 + 1, True),
        ("(a{7}|a{11})*", 59, 59, True),  # the largest that is no sum of sevens and elevens
        ("(a{7}|a{11})*", 60, 60, False),
        ("(a{7}|a{11})*", WIDEST, WIDEST, False),
        ("a*b", WIDEST, WIDEST, False),
        ("a{10}", 11, WIDEST, True),
        ("a{10}", 0, 9, True),
        ("x(a{1000})*y", 10**12 + 2, 10**12 + 2, False),
        ("x(a{1000})*y", 10**12 + 3, 10**12 + 1001, True),
        ("a{10}", 5, 3, True),
    ],
)
def test_bounds_of_any_size_are_exact(pattern: str, least: int, most: int, empty: bool) -> None:
    assert is_empty([parse_regex(pattern)], Lengths(least, most), Steps()) is empty


@pytest.mark.parametrize(
    "child, inner, parent, outer, is_within",
    [
        ([], Lengths(2, 9), None, Lengths(2, 9), True),
        ([], Lengths(2, 9), None, Lengths(2, 8), False),
        ([], Lengths(2, 9), None, Lengths(3, 9), False),
        ([], Lengths(0, 100_000), None, Lengths(0, WIDEST), True),
        ([], Lengths(9, 2), None, Lengths(5, 5), True),
        ([], Lengths(0, 3), parse_regex("[^a]*"), EVERY_LENGTH, False),
        ([], Lengths(0, 3), parse_regex(r"[\s\S]{0,4}"), EVERY_LENGTH, True),
        ([], Lengths(0, 5), parse_regex(r"[\s\S]{0,4}"), EVERY_LENGTH, False),
        ([starting_with("abc")], EVERY_LENGTH, None, Lengths(3, WIDEST), True),
        ([starting_with("abc")], EVERY_LENGTH, None, Lengths(4, WIDEST), False),
        ([starting_with("abc")], Lengths(4, WIDEST), None, Lengths(4, WIDEST), True),
        ([starting_with("abc")], Lengths(0, 3), parse_regex("abc"), EVERY_LENGTH, True),
        ([parse_regex("[a-z]{1,40}")], EVERY_LENGTH, None, Lengths(1, 40), True),
        ([parse_regex("[a-z]{1,40}")], EVERY_LENGTH, None, Lengths(1, 39), False),
        ([parse_regex("[a-z]+")], Lengths(1, 200), parse_regex("[a-z]{1,200}"), Lengths(0, 300), True),
        ([parse_regex("[a-z]+")], Lengths(1, 201), parse_regex("[a-z]{1,200}"), Lengths(0, 300), False),
        ([parse_regex("(a|b{3})*")], Lengths(2, 2), parse_regex("a*"), EVERY_LENGTH, True),
        ([parse_regex("(aa)*"), parse_regex("(aaa)*")], Lengths(1, 11), None, Lengths(6, 6), True),
        ([parse_regex("(aa)*"), parse_regex("(aaa)*")], Lengths(1, 12), None, Lengths(6, 6), False),
        ([parse_regex("(aa)*")], Lengths(1, WIDEST), parse_regex("aa(aa)*"), EVERY_LENGTH, True),
        ([parse_regex("a*")], Lengths(10**15, 10**15), parse_regex("(aa)*"), EVERY_LENGTH, True),
        ([parse_regex("a*")], Lengths(10**15, 10**15 + 1), parse_regex("(aa)*"), EVERY_LENGTH, False),
    ],
)
def test_lengths_narrow_on_both_sides(
    child: list[Language], inner: Lengths, parent: Language | None, outer: Lengths, is_within: bool
) -> None:
    assert within(child, parent, inner=inner, outer=outer) is is_within


# --- bounds on size and work ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, flaw",
    [
        ("a" * 65_536, str(MAX_PATTERN_CHARS)),
        ("|".join(["a"] * 10_000), str(MAX_PATTERN_CHARS)),
        ("(" * 500 + ")" * 500, str(MAX_NESTING)),
        ("(" * 999, str(MAX_NESTING)),
        ("(?:" * 33 + "a" + ")*" * 33, str(MAX_NESTING)),
        ("((a{0,50}){0,50}){0,50}", str(MAX_POSITIONS)),
        ("(.{0,500}){0,500}", str(MAX_POSITIONS)),
        ("(" * 30 + "a" + "{1000})" * 30, str(MAX_POSITIONS)),
        ("a{1000}b{1000}c", str(MAX_POSITIONS)),
        ("(a{1000}|b{1000}|c)", str(MAX_POSITIONS)),
        ("(a{1000}b{1000}c|)", str(MAX_POSITIONS)),
    ],
)
def test_a_pattern_that_is_too_large_is_refused(pattern: str, flaw: str) -> None:
    with pytest.raises(PatternInvalid) as refused:
        parse_regex(pattern)
    assert flaw in refused.value.detail


@pytest.mark.parametrize(
    "pattern, held",
    [
        ("a" * MAX_PATTERN_CHARS, "a" * MAX_PATTERN_CHARS),
        ("a{1000}b{1000}", "a" * 1000 + "b" * 1000),
        ("(" * MAX_NESTING + "a" + ")*" * MAX_NESTING, "aaa"),
        ("(?:" * 20 + "a" + "{0})" * 20, ""),
        ("(" * 30 + "" + "){1000}" * 30, ""),
        ("|".join(chr(0x4E00 + 2 * index) for index in range(500)), "\u4e02"),
        ("(|" * 30 + "a" + ")+" * 30, "aa"),
    ],
)
def test_a_pattern_of_the_largest_size_is_read(pattern: str, held: str) -> None:
    assert holds(parse_regex(pattern), held)


EXPONENTIAL: Final = parse_regex("(a|b)*a(a|b){200}")
OPTIONAL: Final = parse_regex(f"(?:{'a?b?' * 10}){{0,90}}")
COPRIME: Final = [parse_regex(f"(a{{{period}}})*") for period in (2, 3, 5, 7, 11, 13, 17, 19, 23)]


@pytest.mark.parametrize(
    "question",
    [
        lambda steps: included([EXPONENTIAL], EVERY_LENGTH, parse_regex("(a|b)*a(a|b){199}"), EVERY_LENGTH, steps),
        lambda steps: included([OPTIONAL], EVERY_LENGTH, parse_regex("(?:b?a?){0,999}"), EVERY_LENGTH, steps),
        lambda steps: matches(OPTIONAL, "ab" * 5000, steps),
        lambda steps: matches(parse_regex("a*"), "a" * 10**6, steps),
        lambda steps: is_empty(COPRIME, Lengths(1, 10**8), steps),
        lambda steps: is_empty([parse_regex("(a{400}|a{401})*")], Lengths(10**9, 10**9), steps),
        lambda steps: is_empty([parse_regex(rf"[^{c}]*{c}[\s\S]*") for c in "abcdefghijklmnop"], Lengths(0, 15), steps),
        lambda steps: matches(starting_with("a" * 65_536), "a", steps),
        lambda steps: included([starting_with("ab" * 10_000)], EVERY_LENGTH, starting_with("a"), EVERY_LENGTH, steps),
    ],
)
def test_a_question_that_is_too_large_runs_out_of_steps(question: Callable[[Steps], object]) -> None:
    with pytest.raises(OutOfSteps):
        question(Steps())


@pytest.mark.parametrize(
    "question",
    [
        lambda steps: matches(parse_regex("(a|b)*a(a|b){40}"), "ab" * 300, steps),
        lambda steps: matches(parse_regex("[^a]*b"), "".join(map(chr, range(0x4E00, 0x5200))), steps),
        lambda steps: included(
            [parse_regex("[a-z]{0,300}")], EVERY_LENGTH, parse_regex("[a-z0-9]{0,300}"), EVERY_LENGTH, steps
        ),
        lambda steps: is_empty([parse_regex("(a{7}|a{11})*")], Lengths(59, 59), steps),
    ],
)
def test_a_question_costs_the_same_however_often_it_is_asked(question: Callable[[Steps], object]) -> None:
    # What is remembered (less than these texts have characters and states) saves time, never steps.
    assert MAX_REMEMBERED < 600
    assert steps_of(question) == steps_of(question) == steps_of(question)


@pytest.mark.parametrize(
    "language", [EXPONENTIAL, OPTIONAL, parse_regex("(a*)*b"), starting_with("a"), parse_glob("*a*a*a*a*b")]
)
def test_matching_takes_steps_in_proportion_to_the_text(language: Language) -> None:
    costs = [steps_of(partial(matches, language, "a" * size)) for size in (0, 100, 200, 300)]
    growth = [after - before for before, after in pairwise(costs)]
    assert 0 < min(growth) <= max(growth) <= min(growth) + 1


def test_what_is_asked_of_a_language_and_itself_costs_nothing_to_speak_of() -> None:
    for language in (EXPONENTIAL, OPTIONAL, parse_regex("a{1000}b{1000}")):
        asked = partial(included, [ending_with(""), language], EVERY_LENGTH, language, EVERY_LENGTH)
        assert asked(Steps())
        assert steps_of(asked) < 10


def test_usual_questions_are_cheap() -> None:
    email = parse_regex(r"[a-z0-9._%+-]+@[a-z0-9.-]+\.(com|org|example)")
    assert steps_of(lambda steps: matches(email, "a" * 186 + "@acme.example", steps)) < 200
    child = [parse_regex(r"[a-z]+@acme\.com")]
    assert steps_of(lambda steps: included(child, EVERY_LENGTH, email, Lengths(0, 200), steps)) < 1000
    assert steps_of(lambda steps: included(child, Lengths(0, 100_000), None, Lengths(0, 100_000), steps)) < 1000


# --- languages as values ----------------------------------------------------------------------------------


def test_languages_are_equal_if_they_are_written_alike() -> None:
    assert parse_regex("a|b") == parse_regex("[ab]") == parse_regex("^[a-b]$")
    assert starting_with("a.") == parse_regex(r"a\.[\s\S]*")
    assert hash(parse_glob("a")) == hash(parse_regex("a"))
    assert parse_regex("a") != parse_regex("aa|a")
    assert starting_with("a") != ending_with("a")


@pytest.mark.parametrize(
    "language, pattern",
    [
        (starting_with("a.b/c"), r"^a\.b/c"),
        (ending_with(".pdf"), r"\.pdf$"),
        (starting_with(""), "^"),
        (parse_regex(r"[\s\S]*[\s\S]*"), "^"),
        (parse_regex(""), "^$"),
        (parse_glob("/data/*.pdf"), r"^/data/[^\x00-\x1f\x2f\x7f-\x9f]*\.pdf$"),
        (parse_regex("(ab|cd)+x{2,}y{3}z?"), "^(?:ab|cd)+x{2,}y{3}z?$"),
        (parse_regex("ab|cd"), "^(?:ab|cd)$"),
        (parse_regex(r"[\s\S]*(ab|cd)[\s\S]*"), "(?:ab|cd)"),
        (parse_regex("(a{2}){3}"), "^(?:a{2}){3}$"),
        (parse_regex("(a*)?"), "^a*$"),
        (parse_regex("(a?b?){2,3}(|c)"), "^(?:a?b?){0,3}c?$"),
        (parse_regex(r"[^\n]\d\t"), r"^[^\x0a][0-9]\x09$"),
        (parse_regex(r"[\]\-^&~]"), r"^[\x26\x2d\x5d\x5e\x7e]$"),
        (parse_regex("\u00e9\u4e00\U0001f600"), "^\\xe9\\u4e00\U0001f600$"),
        (parse_regex(r"[\s\S]"), r"^[\s\S]$"),
        (parse_regex(r"\$"), r"^\$$"),
    ],
)
def test_a_portable_pattern_reads_well(language: Language, pattern: str) -> None:
    assert pattern_of(language) == pattern


@pytest.mark.parametrize("pattern", [".{1000}", "[^/]{0,1000}", r"[\s\S]{1000}[\s\S]{1000}", r"[\W\d]{1000}"])
def test_the_largest_portable_patterns_are_taken_by_a_validator(pattern: str) -> None:
    jsonschema_rs.validator_for({"pattern": pattern_of(parse_regex(pattern))})
