"""What the chat says, in both languages."""

from __future__ import annotations

from perdure.errors import Words

FIRST_START: Words = (
    "No endpoint is set, so the small model that came with perdure runs, on this machine alone:\n"
    "it can use tools, but knows little. A real one: perdure --base-url URL --model NAME, or\n"
    "OPENAI_BASE_URL and OPENAI_API_KEY in the environment, or base_url and model in {file}",
    "没有设置端点，因此运行的是随 perdure 附带的小模型，只在本机上：它会用工具，但所知不多。\n"
    "要使用真正的模型：perdure --base-url URL --model 名称，或设置环境变量\n"
    "OPENAI_BASE_URL 和 OPENAI_API_KEY，或在 {file} 中写 base_url 和 model",
)
WELCOME: Words = (
    "perdure {version} · session {session} · /help shows what there is",
    "perdure {version} · 会话 {session} · /help 查看可用命令",
)
GOES_ON: Words = (
    "perdure {version} · going on with {session} ({turns} {turns:turn|turns})",
    "perdure {version} · 继续会话 {session}（{turns} 个回合）",
)
LEAVING: Words = (
    "to go on: perdure chat --session {session}",
    "继续此会话：perdure chat --session {session}",
)
PRESS_AGAIN: Words = ("Ctrl-C again, or Ctrl-D, to leave", "再按一次 Ctrl-C 或按 Ctrl-D 退出")
INTERRUPTED: Words = ("interrupted; what was said is kept", "已中断；说过的内容都已保存")
QUEUED: Words = ("next: {text}", "下一个：{text}")
UNQUEUE: Words = ("(Up takes it back)", "（按上方向键取回）")
STOP: Words = ("Esc stops", "按 Esc 停止")
PASTED: Words = ("[pasted {count} lines #{number}]", "[粘贴了 {count} 行 #{number}]")
OPEN: Words = ("(/open {number} shows all)", "（/open {number} 查看全部）")
THOUGHT: Words = ("thinking: {text}", "思考：{text}")
COMPACTED: Words = (
    "{count} {count:entry|entries} ({entries}) left the window: {before} → {after} tokens; "
    "the gist, by {by}: {gist}; /context shows it, /recall N reads an entry",
    "第 {entries} 条记录移出窗口：{before} → {after} 个 token；摘要（由{by}写成）：{gist}；"
    "/context 查看，/recall N 读取记录",
)
SHORTENED: Words = (
    "long entries were shortened: {before} → {after} tokens; /recall N reads one whole",
    "较长的记录已缩短：{before} → {after} 个 token；/recall N 读取全文",
)
BY: dict[str, Words] = {"model": ("the model", "模型"), "code": ("code", "代码")}
NO_GIST: Words = ("none yet", "尚无")
WHY_NOT: Words = ("why not? ", "为什么不？")
NO_COMMAND: Words = ("there is no {name}{hint}", "没有 {name}{hint}")
HINT: Words = ("; did you mean {near}?", "；您是指 {near} 吗？")
NEEDS: Words = ("{name} needs {what}", "{name} 需要 {what}")
BUSY: Words = ("not while a turn runs: Esc stops it", "回合进行中不可用：按 Esc 停止")
NOTHING_OPEN: Words = ("there is no call {number}", "没有编号为 {number} 的调用")
NO_TURN: Words = ("nothing was said in this session yet", "本会话还没有任何内容")
SET: Words = ("{name}: {value}", "{name}：{value}")
CLEARED: Words = ("a new session, {session}; the one before is kept", "新会话 {session}；之前的会话已保存")
SWITCHED: Words = ("now in {session}", "当前会话：{session}")
COST: Words = (
    "since the chat began: {prompt} + {completion} tokens ({cached} from a cache), {cost}",
    "自聊天开始：{prompt} + {completion} 个 token（其中缓存 {cached}），{cost}",
)
POLICY: Words = (
    "mode: {mode}\nallowed: {allow}\nasked: {ask}\ndenied: {deny}",
    "模式：{mode}\n允许：{allow}\n询问：{ask}\n禁止：{deny}",
)
MODES: dict[str, Words] = {
    "read-only": ("only what looks may run (--read-only)", "只允许查看（--read-only）"),
    "yes": ("all is approved unasked (--yes)", "全部自动批准（--yes）"),
    "ask": ("what acts is asked about", "会改变东西的操作需要询问"),
}
TOOLS_LOOK: Words = ("looks", "查看")
TOOLS_ACT: Words = ("acts", "操作")
HELP: tuple[tuple[str, Words], ...] = (
    ("/help", ("this list", "本列表")),
    ("/context", ("what is in the window, in tokens, and what left it", "窗口中的内容（token）及移出的内容")),
    ("/compact", ("make room in the window now", "立即腾出窗口空间")),
    ("/recall TEXT|N", ("search all that was said, or read entry N", "搜索说过的内容，或读取第 N 条记录")),
    ("/plan [on|off|TASK]", ("plan first; with a TASK, only this one", "先制定计划；给出任务则只对它")),
    ("/judge [on|off|auto]", ("check answers before they count", "在采纳前检查回答")),
    ("/model [NAME]", ("the model that answers", "回答所用的模型")),
    ("/tools", ("the tools there are", "可用的工具")),
    ("/policy", ("what tools may do", "工具可以做什么")),
    ("/undo", ("take the last turn back, with the files it changed", "撤销上一回合及其修改的文件")),
    ("/fork [N]", ("go on from entry N in a session of its own", "从第 N 条记录起另开会话")),
    ("/sessions [NAME]", ("all sessions; with a NAME, go on in it", "所有会话；给出名称则切换")),
    ("/export [FILE]", ("this session as Markdown, HTML or JSONL", "将本会话导出为 Markdown、HTML 或 JSONL")),
    ("/open N", ("call N whole: arguments and result", "查看第 N 次调用的参数和结果")),
    ("/clear", ("a new session", "新会话")),
    ("/cost", ("tokens and money since the chat began", "自聊天开始的 token 与费用")),
    ("/quit", ("leave; the session is kept", "退出；会话已保存")),
)
KEYS: Words = (
    "Enter sends · Alt-Enter or Ctrl-J: a new line · Ctrl-R searches earlier input · @ names a file · Esc or "
    "Ctrl-C stops a turn",
    "Enter 发送 · Alt-Enter 或 Ctrl-J 换行 · Ctrl-R 搜索历史输入 · @ 引用文件 · Esc 或 Ctrl-C 停止回合",
)
