"""A gist by code: sentences chosen from what left the window. Pure, in milliseconds.

It can't invent: each line is its source's own words, cut at most, which no small model can promise.
What is chosen is what says the most for its tokens: exact literals, rules, decisions and numbers
weigh more than talk, and what a chosen line already says weighs nothing, so that no fact stands
twice. The gist so far competes with the new sentences on the same terms, with an advantage that
wanes: nothing is appended blindly and nothing is dropped merely because something newer came.

Text that a tool showed is data. It stands only behind its call, an order in it is left out, and
only the person's own words become a constraint.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from perdure.chat.language import Language, say
from perdure.chat.messages import Kind
from perdure.memory.gist import HEADINGS, Line, Section, rendered
from perdure.memory.sentences import ENDS, LEFT_OUT, LOG, VALUES, beginning, cut, pieces, sentences
from perdure.memory.sources import Source

#: Characters of a line, of one that tells what a tool showed, and of the call in front of that.
LONGEST, SHOWN, CALL_KEPT = 160, 130, 60
#: Worth of a sentence by who said it. What is in the gist already has no author but its section.
WHO = {Kind.USER: 1.6, Kind.ASSISTANT: 1.1, Kind.TOOL_RESULT: 0.4}
WAS: dict[Section, float] = {"goals": 1.6, "facts": 1.3, "tools": 0.4, "constraints": 1.6, "open": 1.0}
#: Share by which a line of the gist so far is preferred, and entries after which half of it is gone.
ADVANTAGE, WANES = 1.0, 60
#: Share of its worth that the oldest sentence keeps, and entries after which half of the rest is gone.
OLDEST, AGES = 0.8, 80
#: Weight of a literal, a name, a number of one or two digits or an abbreviation, a word, a pair of
#: Chinese characters.
LITERAL, NAME, SMALL, WORD, PAIR = 2.5, 1.3, 0.8, 0.35, 0.15
#: Weight that cue words add, by what they point to.
CUES = {"rules": 2.5, "facts": 2.0, "goals": 1.0, "open": 1.5}
#: Power of a line's tokens that its worth is divided by: 0 prefers long lines, 1 short ones.
THRIFT = 0.8
#: A sentence of which less than this share is new says nothing new.
NOVEL = 0.4
#: Tokens of a line's dash and numbers, for the order in which lines are tried; what is kept is counted.
FRAME = 7
#: Weight of what a sentence says, up to which it is talk; what its place at the beginning or the end
#: multiplies, and what a failure adds to a part of an output.
TALK, FIRST, FAILED = 0.8, 1.15, 20.0
#: Lines that don't fit in a row, after which no other is tried.
MISSES = 8

#: What a word points to. With ``^`` it counts only as an imperative: at the beginning, or after "please".
_ENGLISH: dict[str, str] = {
    word: cue
    for cue, listed in {
        "rules": "must never always prefer prefers preference ^don't ^avoid ^use ^keep ^only required "
        "forbidden ensure allowed mandatory rule rules policy allergic instead shouldn't mustn't convention",
        "facts": "decided decision decide chose chosen agreed because caused cause found result answer total "
        "costs cost price budget deadline due called named born birthday lives set changed fixed switched "
        "version port password account confirmed booked ordered limit equals owner expires moved renamed "
        "scheduled sister brother mother father wife husband daughter son my our",
        "goals": "want wants need needs goal help please i'd ^write ^add ^fix ^build ^make ^find ^implement "
        "^create ^plan ^book ^cancel ^check ^change ^show ^explain ^let's ^update ^remove ^compare ^prepare",
        "open": "todo ^next still remains pending unresolved failed fails failing blocked yet unanswered "
        "waiting follow-up unclear",
    }.items()
    for word in listed.split()
}
_CHINESE: dict[str, re.Pattern[str]] = {
    "rules": re.compile(
        "必须|不要|不能|不得|始终|总是|永远|务必|偏好|更喜欢|禁止|只能|只用|一律|过敏|别再|规定"
    ),
    "facts": re.compile(
        "决定|因为|原因|结果|答案|总共|合计|价格|预算|截止|名叫|叫做|生日|住在|改为|改成|版本|端口|密码"
        "|账号|确认|已预订|选择了|选用|采用|发现|号是|到期|负责人|修复了|换成|定在|妹妹|姐姐|哥哥|弟弟"
        r"|妻子|丈夫|女儿|儿子|父亲|母亲|的.{1,8}[是叫为在]"
        r"|[一二三四五六七八九十百千万两\d] ?[月日号元块点年]"
    ),
    "goals": re.compile("请|帮我|我想|我要|需要|希望|目标|能不能|能否|可以.{0,12}吗|麻烦"),
    "open": re.compile("待办|接下来|下一步|还没|尚未|还需|未完成|失败|稍后|待定|等待"),
}
#: Words that say nothing by themselves.
_NOTHING = (
    "a an and are as at be been but by can could did do does for from get go going had has have he her here "
    "hi his how i i'd i'll i'm i've if in into is isn't it it's its just like me my no not now of on one or "
    "our out over she so some sure than that that's the their them then there these they this to up us very "
    "was we we'll were what when where which who will with would yes you you're your about after again all "
    "also any before being both each few more most much other own same too through until while let ok okay "
    "thanks thank hello hey great good nice fine cool perfect awesome welcome happy glad course look looks "
    "looking take moment sounds got right well really know think please see anything else something don't "
    "today lovely morning evening weekend day lot kind appreciate wonderful absolutely certainly soon talk "
    "let's done hope hopefully ready yeah yep hmm ah oh bye"
)
_EMPTY = frozenset(_NOTHING.split())
_TALK = re.compile(
    "好的|好滴|好吧|谢谢|多谢|感谢|你好|您好|没问题|不客气|当然|明白了?|收到|稍等|我来看看|看一下|一下|辛苦了|太好了|太棒了"
    "|可以的?|嗯+|哈+|再见|请|天气|今天|不错|还有|什么|其他|需要|吗|呢|吧|了|的|我|您|你|帮|随时|告诉|让|这就|马上|很高兴|乐意"
)
#: What a model asks, offers and announces is part of the talk, unless it names something exactly.
_OFFERS = (
    "please",
    "feel free",
    "let me ",
    "i'll ",
    "i’ll ",
    "i will ",
    "i can ",
    "assist",
    "请",
    "随时",
    "我来",
    "我会",
)
_OFFERED = ("if you", "如果", "如有", "请", "我先", "我去", "我马上")
_RUN = re.compile(r"[A-Za-z0-9_$€£¥~/#][\w./:@#~%+'’=-]*", re.ASCII)
_SEPARATED = re.compile(r"\w[/_.@:]\w|^[~/$]|\w-\w")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_FAILURES = (
    *("error", "fail", "exception", "denied", "refused", "traceback", "timeout", "timed out", "not found"),
    *("no such", "exit code 1", "错误", "失败", "异常", "拒绝", "超时", "不存在"),
)
#: A tool's text that speaks to the assistant. What follows it in the same output is left out too.
_ORDERS = re.compile(
    r"(?:note|message|attention|instructions?|reminder)\s+(?:to|for)\s+(?:the\s+|all\s+|any\s+)?"
    r"(?:assistant|ai|agent|model|llm)"
    r"|(?:ignore|disregard|forget|override)\s+(?:\w+\s+){0,4}(?:instruction|rule|prompt|message|guideline)"
    r"|from now on|you are now|you must (?:always|never|now|immediately)"
    r"|your new (?:instruction|task|role|goal)"
    r"|(?:dear|hey|as an?) (?:assistant|ai)\b|system prompt|(?:don't|do not) (?:tell|inform|mention)"
    r"|\bassistant\s*[:,：，]"
    r"|(?:忽略|无视|忘记|忘掉)(?:掉|你)?(?:之前|以上|上述|前面|先前|所有|此前|一切)|(?:致|给|告)(?:助手|AI|模型)|助手(?:请|必须|注意|：)"
    r"|从现在(?:开始|起)|你(?:必须|现在是|应当|务必)|不要告诉(?:用户|任何)",
    re.IGNORECASE,
)
#: One of these stands in every English order: looked for first, because most outputs have none.
_ADDRESSED = (
    *("assistant", " ai", "agent", "model", "llm", "ignore", "disregard", "forget", "override"),
    *("from now on", "you are now", "you must", "your new", "system prompt"),
    *("n't tell", "not tell", "n't inform", "not inform", "n't mention", "not mention"),
)


@dataclass(slots=True)
class _Sentence:
    """Something a line could say. ``says``: its literals, names, words and pairs, each with its weight;
    ``worth``: what one unit of it counts, by author, place and age; ``cue``: the weight of its cues;
    ``whole``: the line that it is the beginning of."""

    line: Line
    says: dict[str, float]
    worth: float
    cue: float
    whole: Line | None = None

    def value(self, said: set[str]) -> float:
        """Its worth for each token, given what the chosen lines say; nothing where that is all of it."""
        new = sum(weight for word, weight in self.says.items() if word not in said)
        whole = sum(self.says.values())
        if new < NOVEL * whole or not new:
            return 0.0
        cost = FRAME + len(self.line.text.encode("utf-8", "replace")) / 4
        return float(self.worth * (new + self.cue * new / whole) / cost**THRIFT)


def extracted(
    old: Sequence[Line], sources: Sequence[Source], limit: int, count: Callable[[str], int], lang: Language
) -> list[Line]:
    """The gist of ``old``, the lines so far, and of ``sources``, what left since, oldest first.

    Rendered in ``lang``, it has at most ``limit`` tokens by ``count``. Where nothing new is worth a
    line, the old ones stand as they are. Each text is that of an old line or of a source, with gaps
    and a cut end marked by an ellipsis.
    """
    numbers = [each.entries for each in old] + [each.entries for each in sources]
    newest = max((seq for entries in numbers for seq in entries), default=0)
    new = [sentence for source in sources for sentence in _sentences(source, newest)]
    if not new and count(rendered(old, lang)) <= limit:
        return _ordered(old)
    known = [_old(line, newest) for line in old if line.section != "tools" or not _order(line.text)]
    chosen = _chosen(_current([*known, *new]), limit, count, lang)
    # Tokens of the parts may not add up to those of the whole.
    while chosen and count(rendered(chosen, lang)) > limit:
        chosen.pop()
    return _ordered(chosen)


def _current(sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """Without what a call showed that was made again later: of two test runs, the second one counts."""
    calls = [
        each.line.text.partition(") -> ")[0] if each.line.section == "tools" else "" for each in sentences
    ]
    latest = {call: at for at, call in enumerate(calls)}
    return [
        each
        for at, (each, call) in enumerate(zip(sentences, calls, strict=True))
        if not call or "…" in call or latest[call] == at
    ]


def _chosen(
    sentences: Sequence[_Sentence], limit: int, count: Callable[[str], int], lang: Language
) -> list[Line]:
    """The lines that fit, those worth most first. What is chosen makes others worth less, never more,
    so only the best need be looked at again."""
    chosen: list[_Sentence] = []
    # What the person wants isn't said by a fact that names the same things.
    wanted: set[str] = set()
    told: set[str] = set()
    opened: set[Section] = set()
    room, misses = limit, 0
    heap = [(-value, at) for at, each in enumerate(sentences) if (value := each.value(told)) > 0]
    heapq.heapify(heap)
    while heap and misses < MISSES:
        _, at = heapq.heappop(heap)
        sentence = sentences[at]
        line = sentence.line
        said = wanted if line.section == "goals" else told
        value = sentence.value(said)
        if heap and value > 0 and -value > heap[0][0]:
            heapq.heappush(heap, (-value, at))
        elif value > 0:
            cost = _cost(line, count, lang, headed=line.section not in opened)
            if cost > room:
                misses += 1
                continue
            room, misses = room - cost, 0
            opened.add(line.section)
            said.update(sentence.says)
            chosen.append(sentence)
    lines = []
    for sentence in chosen:
        line, whole = sentence.line, sentence.whole
        if whole and (more := _cost(whole, count, lang) - _cost(line, count, lang)) <= room:
            line, room = whole, room - more
        lines.append(line)
    return lines


def _cost(line: Line, count: Callable[[str], int], lang: Language, *, headed: bool = False) -> int:
    """Tokens of a line, with its section's heading where that is new."""
    text = rendered([line], lang)
    return count(text if headed else text.removeprefix(f"{say(HEADINGS[line.section], lang)}:"))


def _ordered(lines: Iterable[Line]) -> list[Line]:
    """By section, then by entries."""
    place = {section: at for at, section in enumerate(HEADINGS)}
    return sorted(lines, key=lambda line: (place[line.section], line.entries[:1]))


def _old(line: Line, newest: int) -> _Sentence:
    age = newest - max(line.entries, default=0)
    says, cues = _read(line.text)
    worth = WAS[line.section] * _freshness(age) * (1 + ADVANTAGE * 0.5 ** (age / WANES))
    return _Sentence(line, says or {line.text: WORD}, worth, _weight_of(cues))


def _sentences(source: Source, newest: int) -> Iterator[_Sentence]:
    fresh = _freshness(newest - max(source.entries, default=0))
    if source.kind is Kind.TOOL_RESULT:
        yield from _showed(source, fresh)
        return
    parts = [piece for part in sentences(source.text, ENDS) for piece in pieces(part, LONGEST)]
    for at, text in enumerate(parts):
        says, cues = _read(text)
        cue = _weight_of(cues)
        if not says or sum(says.values()) + cue <= TALK:
            continue
        if source.kind is Kind.ASSISTANT and _offers(text, max(says.values())):
            continue
        section = _section(source.kind, text, cues)
        # A request opens with what it wants; an answer ends with what came out.
        place = FIRST if at == 0 or (source.kind is Kind.ASSISTANT and at == len(parts) - 1) else 1.0
        worth = WHO[source.kind] * fresh * place
        line = Line(section, text, source.entries)
        yield _Sentence(line, says, worth, cue)
        if short := beginning(text):
            said, cues = _read(short)
            yield _Sentence(Line(section, short, source.entries), said, worth, _weight_of(cues), line)


def _showed(source: Source, fresh: float) -> Iterator[_Sentence]:
    """A call and the parts of its result that say most, as one line."""
    order = _order(source.text)
    call, arrow, showed = source.text[: order.start() if order else None].partition(") -> ")
    head = cut(call + arrow[:1], CALL_KEPT) + arrow[1:]
    room = SHOWN - len(head)
    ends = VALUES if showed[:1] in {"{", "["} else LOG
    if order:
        # What its sentence begins with goes with it.
        showed = showed[: max((end.end() for end in ends.finditer(showed)), default=0)]
    parts = [piece for part in sentences(showed, ends) for piece in pieces(part, room)]
    read = [_read(part)[0] for part in parts]
    failed = _fails(showed)
    # A failure is what will be asked for first.
    worth = [
        sum(says.values()) + FAILED * (failed and _fails(part))
        for says, part in zip(read, parts, strict=True)
    ]
    kept: set[int] = set()
    for at in sorted(range(len(parts)), key=lambda at: (-worth[at], at)):
        if worth[at] and room >= len(parts[at]):
            kept.add(at)
            room -= len(parts[at]) + 3
    if kept:
        line = Line("tools", head + _excerpt(showed, parts, kept), source.entries)
        says = _read(head)[0]
        for at in sorted(kept):
            says |= read[at]
        yield _Sentence(line, says, WHO[source.kind] * fresh, 2 * CUES["open"] * failed)


def _excerpt(text: str, parts: Sequence[str], kept: set[int]) -> str:
    """The kept parts as they stand in the text, with what stands between neighbours, and its gaps marked."""
    excerpt, end, gap = "", 0, False
    for at, part in enumerate(parts):
        words = part.removesuffix("…")
        start = text.find(words, end)
        gap = gap or LEFT_OUT in text[end:start]
        if at in kept:
            stop = start + len(words)
            excerpt += f"… {text[start:stop]}" if gap else text[end:stop]
        gap, end = at not in kept or part != words, start + len(words)
    return excerpt + "…" * gap


def _offers(text: str, most: float) -> bool:
    if text.endswith(("?", "？")):
        return True
    small = text.lower()
    return most < LITERAL and (small.startswith(_OFFERED) or any(word in small for word in _OFFERS))


def _order(text: str) -> re.Match[str] | None:
    """Where a tool's text begins to give orders."""
    small = text.lower()
    if text.isascii() and not any(word in small for word in _ADDRESSED):
        return None
    return _ORDERS.search(text)


def _fails(text: str) -> bool:
    small = text.lower()
    return any(word in small for word in _FAILURES)


def _read(text: str) -> tuple[dict[str, float], set[str]]:
    """What a sentence says, and what its cue words point to. Nothing where it is only talk."""
    says: dict[str, float] = {}
    cues: set[str] = set()
    before = ""
    for run in _RUN.findall(text):
        word, weight, cue, imperative = _word(run)
        if cue or (imperative and (not before or before == "please")):
            cues.add(cue or imperative)
        if weight:
            # The first word's capital says nothing.
            says[word] = WORD if weight == NAME and not before else weight
        before = word or run
    if not text.isascii():
        for han in _HAN.findall(text):
            for part in _TALK.split(han):
                for at in range(len(part) - 1):
                    says[part[at : at + 2]] = PAIR
        cues.update(cue for cue, pattern in _CHINESE.items() if pattern.search(text))
    return says, cues


@lru_cache(maxsize=4096)
def _word(run: str) -> tuple[str, float, str, str]:
    """A word in small letters, its weight by its shape, its cue, and its cue as an imperative."""
    run = run.rstrip(".:'’-=").replace("’", "'")
    word = run.lower()
    return word, _weight(run, word), _ENGLISH.get(word, ""), _ENGLISH.get(f"^{word}", "")


def _weight(run: str, word: str) -> float:
    if not word or word in _EMPTY:
        return 0.0
    if run.isalpha():
        if run[1:].islower() or len(run) == 1:
            return NAME if run[0].isupper() else WORD
        return SMALL if run.isupper() else LITERAL
    if any(map(str.isdigit, run)):
        return LITERAL if len(run) > 2 else SMALL
    return LITERAL if _SEPARATED.search(run) else WORD


def _weight_of(cues: Iterable[str]) -> float:
    return max((CUES[cue] for cue in cues), default=0.0)


def _section(kind: Kind, text: str, cues: set[str]) -> Section:
    if "open" in cues:
        return "open"
    if kind is not Kind.USER:
        return "facts"
    if "rules" in cues:
        return "constraints"
    return "goals" if "goals" in cues or text.endswith(("?", "？")) else "facts"


def _freshness(age: int) -> float:
    return float(OLDEST + (1 - OLDEST) * 0.5 ** (age / AGES))
