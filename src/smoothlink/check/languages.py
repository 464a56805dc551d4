"""The language of a text, guessed by a few frequent words or by its script: a hint that texts are mixed, no more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

FREQUENT_WORDS = {
    "English": "the of and to in is that for with was are this from which by",
    "German": "der die und das ist nicht ein eine mit den von für auf dem sich auch",
    "French": "le les des est et une dans pour qui sur du au avec ce pas sont",
    "Spanish": "el los las que y una por con para del es como más se su",
    "Italian": "il di che è un della per non con sono gli delle nel alla",
    "Portuguese": "os que não um uma do da em para com dos ao são mais na",
    "Dutch": "de het een van en dat op te met voor zijn niet aan wordt",
    "Swedish": "och att det som på är av för med den till inte ett",
    "Danish or Norwegian": "og at det er på af av til den for ikke med som et å",
    "Finnish": "ja on että ei se oli myös ovat kun hän mutta joka",
    "Polish": "i w na się z nie do jest to że jak od po przez",
    "Czech": "a se na je v že to s z do pro jako ale",
    "Hungarian": "a az és hogy nem egy is meg van csak",
    "Turkish": "ve bir bu için ile da de olarak olan daha",
}
SCRIPTS = {
    "Cyrillic script": "\u0400-\u04ff",
    "Greek script": "\u0370-\u03ff",
    "Arabic script": "\u0600-\u06ff",
    "Hebrew script": "\u0590-\u05ff",
    "Devanagari script": "\u0900-\u097f",
    "Thai script": "\u0e00-\u0e7f",
    "Korean": "\uac00-\ud7af",
    "Japanese": "\u3040-\u30ff",
    "Chinese": "\u4e00-\u9fff",
}
WORDS_LOOKED_AT = 200
LEAST_WORDS = 3  # different frequent words of a language, and at least so many more than those of any other
LEAST_LEAD = 2
KNOWN = {name: frozenset(words.split()) for name, words in FREQUENT_WORDS.items()}
LETTERS = {name: re.compile(f"[{letters}]") for name, letters in SCRIPTS.items()}


def guess_language(text: str) -> str | None:
    """Returns the language of a text by its script or its frequent words; None where they do not tell."""
    start = text[: 8 * WORDS_LOOKED_AT]
    if not start.isascii():
        letters = sum(map(str.isalpha, start))
        for name, pattern in LETTERS.items():  # Japanese before Chinese: it uses both
            if len(pattern.findall(start)) > (0.1 if name == "Japanese" else 0.5) * max(1, letters):
                return name
    words = {word.strip(".,;:!?()\"'") for word in start.lower().split()[:WORDS_LOOKED_AT]}
    best, second = Counter({name: len(words & known) for name, known in KNOWN.items()}).most_common(2)
    clear = best[1] >= LEAST_WORDS and best[1] >= second[1] + LEAST_LEAD
    return best[0] if clear else None


def languages_of(texts: Iterable[str]) -> list[str | None]:
    """Returns the guess for each text."""
    return [guess_language(text) for text in texts]
