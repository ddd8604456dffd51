from __future__ import annotations

from typing import Any

import pytest

from perdure.agent.truncation import cut_to
from perdure.chat.encodings import ENCODINGS, tokens_in
from perdure.chat.messages import Message
from perdure.chat.tokens import ScaledCounter, counter_for

LANGUAGES = {
    "Hindi": "नमस्ते, मुझे कल की बैठक के लिए एक रिपोर्ट तैयार करनी है जिसमें बिक्री के आँकड़े हों। ",
    "Arabic": "أريد إعداد تقرير عن المبيعات لاجتماع الغد مع جميع الأرقام المهمة. ",
    "Thai": "ฉันต้องการเตรียมรายงานยอดขายสำหรับการประชุมพรุ่งนี้ ",
    "Korean": "내일 회의를 위해 판매 보고서를 준비해야 합니다. ",
    "Greek": "Πρέπει να ετοιμάσω μια αναφορά πωλήσεων για την αυριανή συνάντηση. ",
    "Hebrew": "אני צריך להכין דוח מכירות לפגישה של מחר. ",
    "Georgian": "ხვალინდელი შეხვედრისთვის გაყიდვების ანგარიში უნდა მოვამზადო. ",
    "Tamil": "நாளைய கூட்டத்திற்கு விற்பனை அறிக்கையை நான் தயார் செய்ய வேண்டும். ",
    "Bengali": "আগামীকালের সভার জন্য আমাকে একটি বিক্রয় প্রতিবেদন প্রস্তুত করতে হবে। ",
    "Burmese": "မနက်ဖြန် အစည်းအဝေးအတွက် အရောင်းအစီရင်ခံစာ ပြင်ဆင်ရန် လိုအပ်သည်။ ",
    "Chinese": "我需要为明天的会议准备一份销售报告，其中包括所有重要的数字，并检查它们是否正确。",
    "Japanese": "明日の会議のために、すべての重要な数字を含む売上報告書を準備する必要があります。",
    "German": "Ich muss für die morgige Besprechung einen Verkaufsbericht vorbereiten. ",
    "English": "I need to prepare a sales report for the meeting tomorrow with all the figures. ",
    "digits": "3141592653589793238462643383279502884197 ",
    "hex": "9f8c3a7be2d14f60a5b19c77e0d4f3a2 ",
    "log": "2026-03-01 10:00:07 ERROR worker 17 failed: connection reset (0x3f2a9c77)\n",
    "emoji": "👍🏽🎉🔥😀👨‍👩‍👧‍👦 ",
    "rules": "| name      | value     |\n|-----------|-----------|\n" + "=" * 80 + "\n",
}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
ESTIMATE = counter_for(None)


def prompt(text: str, images: int = 0) -> list[Message]:
    said: Any = [{"type": "text", "text": text}, *[IMAGE] * images] if images else text
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": said}]


def judged(messages: list[Message], reported: int, counter: Any = ESTIMATE) -> int | None:
    return cut_to(messages, reported, counter, counted=sum(map(counter.message, messages)))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_tokenizer_honestly_counts_is_no_cut_however_high_the_estimate(
    language: str, encoding: str
) -> None:
    text = LANGUAGES[language] * 300
    assert judged(prompt(text), tokens_in(text, encoding)) is None


@pytest.mark.parametrize("window", [2048, 4096, 8192])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_window_much_smaller_than_the_prompt_is_noticed_behind_an_estimate_too(
    language: str, window: int
) -> None:
    text = LANGUAGES[language]
    text *= window * 2 // min(tokens_in(text, "o200k_base"), tokens_in(text, "gemma3")) + 200
    assert judged(prompt(text), window) == window
    assert judged(prompt(text, images=3), window + 3 * 85) == window + 3 * 85


@pytest.mark.parametrize("counter", [ESTIMATE, counter_for("o200k_base"), ScaledCounter(ESTIMATE, 1.5)])
@pytest.mark.parametrize("images", [1, 4, 20])
def test_an_image_that_costs_less_than_we_count_is_no_cut(counter: Any, images: int) -> None:
    messages = prompt("What is here? " * 20, images)
    assert judged(messages, 100 + images * 85, counter) is None


@pytest.mark.parametrize(
    ("sent", "reported", "noticed"),
    [
        (7_900, 2_050, True),
        (65_600, 32_770, True),
        (9_000, 4_500, True),
        (9_000, 6_800, False),
        (9_000, 9_400, False),
        (9_000, 0, False),
        (1_200, 300, False),
    ],
)
def test_with_the_models_own_tokenizer_a_cut_is_told_from_counts_that_differ(
    sent: int, reported: int, noticed: bool
) -> None:
    messages = prompt("word " * sent)
    expected = reported if noticed else None
    assert judged(messages, reported, counter_for("o200k_base")) == expected
    assert cut_to(messages, reported, counter_for("o200k_base")) == expected


def test_what_calls_say_is_weighed_as_well() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": "[1] " * 9_000}}
    messages = [*prompt("Go."), {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert judged(messages, 4_096) == 4_096
