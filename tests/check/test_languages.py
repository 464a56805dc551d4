"""Languages are guessed where a text tells, and not where it does not."""

import pytest

from smoothlink.check.languages import guess_language

TEXTS = {
    "English": "This is the first of the reports, and it was written for those that work with the data.",
    "German": "Das ist der erste Bericht, und er ist nicht für die geschrieben, die mit den Daten arbeiten.",
    "French": "Ce rapport est le premier et il est pour les personnes qui travaillent avec des données dans une ville.",
    "Spanish": "El informe es para los que trabajan con las tablas y se publica como una parte del libro por la tarde.",
    "Italian": "Il rapporto è un documento che non si trova nel libro della città, per gli studenti che sono con noi.",
    "Dutch": "Het rapport wordt gemaakt voor een groep van mensen die niet met de gegevens werken, en dat is op tijd.",
    "Swedish": "Det är en rapport som inte är för alla, och den ska till dem som arbetar med data på ett bra sätt.",
    "Finnish": "Tämä on raportti, joka ei ole kaikille, ja se on niille, jotka oli mukana, kun hän tuli, mutta että.",
    "Cyrillic script": "Это первый отчёт для тех, кто работает с данными.",
    "Chinese": "这是第一份报告，写给处理数据的人。",
    "Japanese": "これはデータを扱う人のための最初の報告です。",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_tells_its_language(language):
    assert guess_language(TEXTS[language]) == language


@pytest.mark.parametrize("text", ["", "numpy.linalg.svd", "12 34 56", "Schadenfreude", "the la de und"])
def test_what_does_not_tell_is_not_guessed(text):
    assert guess_language(text) is None
