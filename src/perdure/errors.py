"""The whole tree of errors. One look shows what can be caught.

    PerdureError
    ├── ConfigError                 a setting or an argument is wrong             exit 2
    │   └── EmbeddedModelMissing    the small model's package is not installed    exit 2
    ├── EndpointError               the model's endpoint did not give an answer   exit 1
    │   ├── EndpointUnreachable     no connection, or silence past the limit
    │   ├── EndpointBroken          5xx, HTML, not JSON, an error inside a stream
    │   │   └── StreamCut           the stream ended in the middle
    │   └── EndpointRefused         4xx: the endpoint understood and said no
    │       ├── AuthenticationRefused   401, 403                                  exit 2
    │       ├── ModelUnknown            the endpoint does not have that model     exit 2
    │       ├── RateLimited             429, after all retries
    │       └── ContextOverflow         the prompt is longer than the window
    ├── AnswerUnfit                 no answer fits the schema that it must fit    exit 1
    ├── PromptOverflow              what must be sent is larger than the budget   exit 2
    ├── ImportUnreadable            nothing in a file can be read as a conversation  exit 2
    ├── StoreError                  the journal cannot be read or written         exit 1
    │   ├── StoreNewer              written by a newer perdure
    │   ├── StoreForeign            another program's database
    │   ├── StoreReadOnly           it can be read, and not written
    │   ├── SessionUnknown          no session of that name                       exit 2
    │   ├── EntryUnknown            the session has no entry of that number       exit 2
    │   ├── SessionExists           a session of that name is there already       exit 2
    │   └── SessionHeld             another process is at work in it
    └── ToolError                   a tool call failed: the model reads it and tries otherwise

Each error says who must act, what happened, what was kept, and what to do next, in English and
Chinese. An error is a type and its facts; the words are made from both when somebody reads them.
"""

from __future__ import annotations

import errno
from typing import ClassVar, Literal

Actor = Literal["person", "model", "caller"]

#: The same words twice: English, Chinese.
Words = tuple[str, str]


class PerdureError(Exception):
    """Base of all errors of this package.

    ``detail`` in one language, or in both. ``facts`` fill the places in it and in the error's own words
    (``{url}``); they are also attributes of the error. One that is `Words` or an error itself is said in
    the language that is asked for.
    """

    acts: ClassVar[Actor] = "person"
    exit_code: ClassVar[int] = 1
    what: ClassVar[Words] = ("{detail}", "{detail}")
    kept: ClassVar[Words] = ("", "")
    then: ClassVar[Words] = ("", "")

    def __init__(self, detail: str | Words = "", **facts: object) -> None:
        self.facts: dict[str, object] = {"detail": detail, **facts}
        super().__init__(self.say("en"))

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def say(self, lang: str) -> str:
        """What happened, what was kept and what to do next, in ``en`` or ``zh``."""
        which = 1 if lang == "zh" else 0
        facts = _Facts({name: _said(fact, lang) for name, fact in self.facts.items()})
        if isinstance(self.facts["detail"], tuple):
            facts["detail"] = str(facts["detail"]).format_map(facts)
        parts = (words[which] for words in (self.what, self.kept, self.then))
        said = (part.format_map(facts) for part in parts if part)
        return ("" if which else " ").join(part for part in said if part).strip()


class _Facts(dict[str, object]):
    """Facts for ``format_map``: a missing one shows as a question mark instead of raising."""

    def __missing__(self, key: str) -> str:
        return "?"


def _said(fact: object, lang: str) -> object:
    if isinstance(fact, PerdureError):
        return fact.say(lang)
    return fact[1 if lang == "zh" else 0] if isinstance(fact, tuple) else fact


#: What the system says of a file, in Chinese.
_FILE_TROUBLES = {
    errno.ENOENT: "没有这个文件或文件夹",
    errno.EACCES: "没有权限",
    errno.EPERM: "没有权限",
    errno.EISDIR: "它是一个文件夹",
    errno.ENOTDIR: "路径中有一部分是文件，不是文件夹",
    errno.EEXIST: "它已经存在",
    errno.ENOSPC: "没有剩余空间",
    errno.EROFS: "那里不能写入",
    errno.ENAMETOOLONG: "名称太长",
    errno.ELOOP: "其链接循环往复",
}


def why(error: OSError) -> Words:
    """What the system says of a file, in both languages; what is rare, in Chinese by its number."""
    number, told = error.errno or 0, str(error.strerror or error)
    return told, _FILE_TROUBLES.get(number, f"系统错误 {number}" if number else told)


class ConfigError(PerdureError):
    exit_code = 2


class EmbeddedModelMissing(ConfigError):
    what = ("The embedded model is not installed ({detail}).", "内置模型没有安装（{detail}）。")
    then = (
        "Run `perdure embedded install`, or name an endpoint with --base-url and --model.",
        "请运行 `perdure embedded install`，或用 --base-url 和 --model 指定一个端点。",
    )


class EndpointError(PerdureError):
    kept = ("The session is kept.", "会话已保存。")


class EndpointUnreachable(EndpointError):
    what = ("No answer from {url}: {detail}.", "{url} 没有响应：{detail}。")
    then = (
        "Check that the server runs and that --base-url is right.",
        "请检查服务器是否在运行、--base-url 是否正确。",
    )


class EndpointBroken(EndpointError):
    what = ("{url} answered with something else: {detail}.", "{url} 的应答无法使用：{detail}。")
    then = (
        "Check --base-url (it usually ends in /v1), or try again later.",
        "请检查 --base-url（通常以 /v1 结尾），或稍后再试。",
    )


class StreamCut(EndpointBroken):
    what = ("The answer of {url} was cut in the middle: {detail}.", "{url} 的应答中途断开：{detail}。")
    then = ("Try again.", "请重试。")


class EndpointRefused(EndpointError):
    what = (
        "{url} refused the request (HTTP {status}): {detail}.",
        "{url} 拒绝了请求（HTTP {status}）：{detail}。",
    )


class AuthenticationRefused(EndpointRefused):
    exit_code = 2
    what = (
        "{url} refused the key (HTTP {status}): {detail}.",
        "{url} 拒绝了密钥（HTTP {status}）：{detail}。",
    )
    then = ("Set OPENAI_API_KEY to a valid key.", "请把 OPENAI_API_KEY 设为有效的密钥。")


class ModelUnknown(EndpointRefused):
    exit_code = 2
    what = (
        "{url} has no model '{model}': {detail}.",
        "{url} 没有模型“{model}”：{detail}。",
    )
    then = ("Name one it has with --model.", "请用 --model 指定它已有的模型。")


class RateLimited(EndpointRefused):
    what = (
        "{url} asks to wait (HTTP {status}): {detail}.",
        "{url} 要求等待（HTTP {status}）：{detail}。",
    )
    then = ("Go on later in the same session.", "请稍后在同一会话中继续。")
    #: Seconds the endpoint asked to wait, where it said so.
    retry_after: float | None


class ContextOverflow(EndpointRefused):
    what = (
        "The prompt is longer than the model's window: {detail}.",
        "提示超过了模型的窗口：{detail}。",
    )
    then = ("Name the real window with --context-window.", "请用 --context-window 指定真实的窗口。")
    #: The window, and the prompt (without the answer), in tokens, where the endpoint's text gives them.
    limit: int | None
    requested: int | None


class AnswerUnfit(PerdureError):
    what = (
        "No answer fits the schema, after {times} tries: {detail}.",
        "尝试 {times} 次，仍没有符合模式的回答：{detail}。",
    )
    kept = ("The session is kept, the answers with it.", "会话已保存，其中包括这些回答。")
    then = (
        "Go on in the same session, make the schema simpler, or use a more capable model.",
        "请在同一会话中继续、简化模式，或换用更强的模型。",
    )


class PromptOverflow(PerdureError):
    exit_code = 2
    what = (
        "What must be sent needs {needed} tokens, and the budget is {budget}.",
        "必须发送的内容需要 {needed} 个 token，而预算只有 {budget}。",
    )
    kept = ("The session is kept.", "会话已保存。")
    then = (
        "Use a larger --context-window, a smaller --max-output-tokens or fewer --tools.",
        "请加大 --context-window、减小 --max-output-tokens，或减少 --tools。",
    )


class ImportUnreadable(PerdureError):
    exit_code = 2
    what = (
        "Nothing in {name} can be read as a conversation: {detail}.",
        "{name} 中没有可以读作对话的内容：{detail}。",
    )
    then = (
        "perdure reads its own JSONL export, JSON and JSONL of chat messages, and the session files of "
        "Claude Code, Codex and pi.",
        "perdure 能读取自己导出的 JSONL、聊天消息的 JSON 与 JSONL，"
        "以及 Claude Code、Codex 和 pi 的会话文件。",
    )


class StoreError(PerdureError):
    what = ("The store {path} cannot be used: {detail}.", "无法使用存储 {path}：{detail}。")
    kept = ("What it holds already is kept.", "其中已有的内容都保留着。")
    then = ("Name another place with --store.", "请用 --store 指定别的位置。")


class StoreNewer(StoreError):
    what = (
        "The store {path} was written by a newer perdure (schema {found}; this one knows {known}).",
        "存储 {path} 由更新的 perdure 写成（模式 {found}；本版本只认识到 {known}）。",
    )
    kept = ("Nothing in it was touched.", "其中的内容没有改动。")
    then = ("Update perdure.", "请升级 perdure。")


class StoreForeign(StoreError):
    what = (
        "{path} is another program's database, not a store of perdure.",
        "{path} 是其他程序的数据库，不是 perdure 的存储。",
    )
    kept = ("Nothing in it was touched.", "其中的内容没有改动。")


class StoreReadOnly(StoreError):
    what = ("The store {path} cannot be written: {detail}.", "无法写入存储 {path}：{detail}。")
    kept = ("It can still be read, and what it holds is kept.", "它仍可读取，其中已有的内容都保留着。")
    then = (
        "To write, you need the right to write the file and its folder {folder}.",
        "要写入，需要该文件及其文件夹 {folder} 的写权限。",
    )


class SessionUnknown(StoreError):
    exit_code = 2
    what = ("There is no session '{name}'.", "没有名为“{name}”的会话。")
    kept = ("", "")
    then = ("`perdure sessions list` shows those that exist.", "`perdure sessions list` 列出已有的会话。")


class StoreMissing(SessionUnknown):
    what = (
        "There is no session '{name}': there is no store {path}.",
        "没有名为“{name}”的会话：存储 {path} 不存在。",
    )
    then = ("Name the one that holds it with --store.", "请用 --store 指定保存它的存储。")


class EntryUnknown(StoreError):
    exit_code = 2
    what = (
        "The session '{name}' has no entry {number}; it has {count}.",
        "会话“{name}”没有第 {number} 条记录；共有 {count} 条。",
    )
    kept = ("", "")
    then = ("", "")


class SessionExists(StoreError):
    exit_code = 2
    what = ("There is a session '{name}' already.", "已经有名为“{name}”的会话。")
    kept = ("It was not changed.", "它没有改动。")
    then = ("Choose another name.", "请换一个名字。")


class SessionHeld(StoreError):
    what = (
        "The session '{name}' is in use by process {process} on {machine}, since {since} UTC.",
        "会话“{name}”正由 {machine} 上的进程 {process} 使用，自 {since} (UTC) 起。",
    )
    kept = ("Nothing was changed.", "没有改动任何内容。")
    then = (
        "Wait until it has ended; meanwhile `perdure sessions show` and `perdure recall` can read it, and "
        "`perdure sessions fork` makes a session of its own from it.",
        "请等它结束；其间可用 `perdure sessions show` 和 `perdure recall` 读取，"
        "或用 `perdure sessions fork` 由它另建一个会话。",
    )


class ToolError(PerdureError):
    """Raised by a tool to tell the model what is wrong; becomes the call's result."""

    acts = "model"
