"""Every fixed text that somebody in a chat can see, in English and in Chinese.

It does not know when one is said. None of them holds a path of this installation's own, the name of an error, or a trace.
"""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    # Which model it was, where it was not the one that was set
    "fallback": ("({model} could not answer: {what}. This answer is by {other}.)", "（{model} 无法回答：{what}。这个回答来自 {other}。）"),
    "no_credit": ("its account has no credit", "账户余额不足"),
    # Why a turn ended without an answer
    "failed": ("No answer: {what}{tries}.", "没有得到回答：{what}{tries}。"),
    "tries": (", after {n} retries", "，已重试 {n} 次"),
    "one try": (", after 1 retry", "，已重试 1 次"),
    "failed other": (
        "Something went wrong here and this turn was given up. The log has the details.",
        "处理时出了问题，这一轮已放弃。详情见日志。",
    ),
    "empty": ("The model gave an empty answer. Please ask again.", "模型给出了空的回答，请再问一次。"),
    "limit": (
        "I stopped after {n} steps without coming to an end. Say \u201cgo on\u201d to let me continue.",
        "我已用完 {n} 步仍未完成，先停在这里。说一声\u201c继续\u201d我就接着做。",
    ),
    "stopped": ("Stopped.", "已停止。"),
    "too many": (
        "{most} messages wait here already. What you write now is kept, and is taken up when there is room.",
        "这里已有 {most} 条消息在等待。你现在写的内容会保留，有空位时就会处理。",
    ),
    "over tokens": (
        "No answer: today's budget is used up ({spent} of {limit} tokens). It ends at {ends}, in {h} h {m} min; /retry tries again then.\n"
        "/usage says what it went to. To go on before that, raise {key} in the configuration.",
        "没有得到回答：今天的额度已用完（{spent} / {limit} 个 token）。{ends} 恢复，还有 {h} 小时 {m} 分，届时发送 /retry 重试。\n"
        "/usage 查看用在了哪里；想提前继续，请在配置里调高 {key}。",
    ),
    "over cost": (
        "No answer: today's budget is used up ({spent} of {limit}). It ends at {ends}, in {h} h {m} min; /retry tries again then.\n"
        "/usage says what it went to. To go on before that, raise {key} in the configuration.",
        "没有得到回答：今天的额度已用完（{spent} / {limit}）。{ends} 恢复，还有 {h} 小时 {m} 分，届时发送 /retry 重试。\n"
        "/usage 查看用在了哪里；想提前继续，请在配置里调高 {key}。",
    ),
    # To the owner, of what nobody waits to hear
    "alert": ("Bubbles needs you: {what}", "Bubbles 需要你处理：{what}"),
    "alert more": (" and {n} more", " 等另外 {n} 个"),
    "alert held": ("messages held: {names} (bubbles queue list --state held)", "被搁置的消息：{names}（bubbles queue list --state held）"),
    "alert undelivered": ("nothing can be delivered by {names} (bubbles status)", "{names} 的消息发不出去（bubbles status）"),
    "alert dead": ("channels that do not run: {names} (bubbles status)", "没有运行的渠道：{names}（bubbles status）"),
    "alert turn": ("turns given up: {names} (bubbles queue list turns)", "已放弃的回合：{names}（bubbles queue list turns）"),
    "alert broken": ("sessions that cannot be used: {names} (bubbles status)", "无法使用的会话：{names}（bubbles status）"),
    "alert job": ("jobs that came to nothing: {names} (bubbles cron list)", "没有完成的定时任务：{names}（bubbles cron list）"),
    "alert cron": ("{names} does not run, so jobs wait (bubbles status)", "{names} 没有运行，定时任务在等待（bubbles status）"),
    "alert budget": (
        "the budget of {names} is used up, and turns that nobody began are stopped until it ends (bubbles usage)",
        "{names} 的额度已用完，无人发起的任务停到当天结束（bubbles usage）",
    ),
    # Which kind of failure it was
    "rate_limited": ("the model's provider limits requests just now", "模型服务商正在限流"),
    "model_down": ("the model cannot be reached", "模型接口暂时不可用"),
    "context_too_long": ("the conversation does not fit the model's window", "对话超出了模型的上下文上限"),
    "not_authorized": ("the model's provider did not accept the key", "模型服务商认证失败"),
    "not_set_up": ("no model is set up that could be asked", "还没有设置可用的模型"),
    "rejected": ("the model's provider refused the request", "模型服务商拒绝了这次请求"),
    "over_budget": ("today's budget is used up", "今天的额度已用完"),
    "other": ("something went wrong here; the log has the details", "处理时出了问题，详情见日志"),
    # Of any command
    "near": (
        "There is no /{typed}. Did you mean /{name}? To say it to the assistant, put a word before it.",
        "没有 /{typed} 这个命令，是想用 /{name} 吗？要把它当作内容发给助手，请在前面加一个字。",
    ),
    "no words": (
        "/{name} takes no words after it, so nothing was done. Send /{name} alone, or put a word before it to say it to the assistant.",
        "/{name} 后面不带内容，所以什么也没做。请单独发送 /{name}；要把它当作内容发给助手，请在前面加一个字。",
    ),
    "owner only": ("Only the owner of this assistant can use /{name}.", "只有这个助手的主人才能使用 /{name}。"),
    "broken": (
        "This session cannot be used: a file of it is damaged. Its owner sees which in a terminal: bubbles status",
        "这个会话暂时用不了：它有文件已损坏。主人可以在终端里查看：bubbles status",
    ),
    "cannot": ("That cannot be done just now; the log has the details.", "现在做不了，详情见日志。"),
    # /help
    "help help": ("/help \u2013 what can be typed", "/help \u2013 可以输入什么"),
    "help status": ("/status \u2013 which model, and what is going on", "/status \u2013 用的模型、正在做什么"),
    "help stop": (
        "/stop \u2013 stop what is running; /stop jobs \u2013 end what runs in the background",
        "/stop \u2013 停下正在做的事；/stop jobs \u2013 结束后台任务",
    ),
    "help retry": ("/retry \u2013 try my last words once more", "/retry \u2013 把我上一句话再做一遍"),
    "help new": ("/new \u2013 begin afresh; what was said is kept", "/new \u2013 重新开始，以前的对话保留"),
    "help usage": ("/usage \u2013 tokens and costs: today, this session, this month", "/usage \u2013 今天、本会话和本月的用量与费用"),
    "help model": ("/model [NAME] \u2013 which model answers, or another one", "/model [模型] \u2013 查看或更换模型"),
    "help config": ("/config [KEY [VALUE]] \u2013 this session's settings", "/config [项 [值]] \u2013 查看或更改这个会话的设置"),
    "help session": ("/session [NAME] \u2013 which session this is, or another one", "/session [名字] \u2013 查看或切换会话"),
    "help prompt": ("/prompt \u2013 the system prompt as the model gets it", "/prompt \u2013 查看发给模型的系统提示词"),
    "help compact": ("/compact \u2013 let a summary stand for what was said", "/compact \u2013 用摘要代替较早的对话"),
    "help pair": ("/pair CODE [owner] \u2013 let somebody in who was given a code", "/pair 配对码 [owner] \u2013 允许收到配对码的人使用"),
    "help words": ("Everything else goes to the assistant, also while it works.", "其他内容都会发给助手，它忙的时候也可以说。"),
    "help terminal": (
        "In this terminal, too: exit or Ctrl-D leaves, Ctrl-C stops the turn, Ctrl-Z suspends, Ctrl-R finds earlier words,\n"
        "Tab completes, Alt-Enter begins a new line. /session NAME goes there, - goes back.",
        "在这个终端里还可以：exit 或 Ctrl-D 退出，Ctrl-C 停下这一轮，Ctrl-Z 挂起，Ctrl-R 找以前输入的话，\n"
        "Tab 补全，Alt-Enter 换行。/session 名字 切换过去，- 切换回来。",
    ),
    # /status
    "session": ("Session: {name}", "会话：{name}"),
    "model": ("Model: {model} \u2192 {provider}", "模型：{model} \u2192 {provider}"),
    "no model": ("Model: {model} ({why})", "模型：{model}（{why}）"),
    "default": ("the default", "默认"),
    "model away": ("the part that asks models does not answer just now", "负责请求模型的程序现在没有响应"),
    "idle": ("Nothing is running.", "现在没有任务在运行。"),
    "working": ("Working for {time}: {what}", "已运行 {time}：{what}"),
    "thinking": ("thinking", "思考中"),
    "running": ("running {tools}", "正在运行 {tools}"),
    "summarising": ("making a summary", "正在写摘要"),
    "answering": ("answering", "正在回复"),
    "stopping": ("stopping", "正在停下"),
    "seconds": ("{s} s", "{s} 秒"),
    "minutes": ("{m} min {s} s", "{m} 分 {s} 秒"),
    "hours": ("{h} h {m} min", "{h} 小时 {m} 分"),
    "waiting": ("Messages waiting: {n}", "等待处理的消息：{n}"),
    "history": ("History: {percent} % of the {window} tokens that fit", "历史：占可用 {window} 个 token 的 {percent}%"),
    "last failure": ("Last failure: {what}", "最近一次失败：{what}"),
    "job": ("In the background for {time}: {id}, {what}", "后台已运行 {time}：{id}，{what}"),
    # /stop, /retry, /new, /compact, /prompt
    "jobs go on": ("In the background go on: {jobs}. /stop jobs ends them.", "后台任务继续运行：{jobs}。发送 /stop jobs 可以结束它们。"),
    "jobs stopped": ("Ended in the background: {jobs}.", "已结束的后台任务：{jobs}。"),
    "no jobs": ("Nothing runs in the background.", "没有后台任务在运行。"),
    "nothing runs": ("Nothing is running.", "现在没有任务在运行。"),
    "busy": ("Something is running. Send /stop first, then /{name}.", "有任务正在运行。请先发送 /stop，再发送 /{name}。"),
    "again": ("Once more: {text}", "再来一遍：{text}"),
    "elsewhere": (
        "Those words belong to another session now. Say them there.",
        "那句话现在属于另一个会话，请到那里再说。",
    ),
    "still waiting": (
        "{n} more messages wait for room and come next; /stop stops them, too, when they do.",
        "还有 {n} 条消息在排队，接下来会处理；轮到时也可以用 /stop 停下。",
    ),
    "nothing to retry": ("There are no words of yours to try again.", "没有可以重做的话。"),
    "new": (
        "A new beginning. What was said so far is not sent to the model any more; it is kept, and found by: bubbles history {name}",
        "已重新开始。之前的对话不再发给模型，但都保留着，可以这样查找：bubbles history {name}",
    ),
    "compacted": ("Summarised: {before} tokens before, {after} now.", "已压缩：原来 {before} 个 token，现在 {after} 个。"),
    "outlined": (
        "Shortened without the model, which gave no summary: {before} tokens before, {after} now.",
        "模型没有给出摘要，已直接缩短：原来 {before} 个 token，现在 {after} 个。",
    ),
    "nothing to compact": ("There is nothing to summarise yet.", "还没有可以压缩的内容。"),
    "compacting": ("A summary is being made already.", "已经在写摘要了。"),
    "tools": ("Tools: {names}", "工具：{names}"),
    "no tools": ("Tools: none", "工具：无"),
    # /session
    "this session": ("This chat is in the session {name}.", "这个聊天现在的会话是 {name}。"),
    "session help": (
        "/session NAME goes to another one; /session - goes back to this chat's own.",
        "/session 名字 切换到别的会话；/session - 回到这个聊天自己的会话。",
    ),
    "bound": ("From now on this chat is in the session {name}.", "从现在起，这个聊天的会话是 {name}。"),
    "unbound": ("This chat is in its own session again.", "这个聊天回到了自己的会话。"),
    "not in a group": ("A group stays in its own session.", "群聊只能使用自己的会话。"),
    "session terminal": (
        "Type /session NAME in bubbles agent, or start it there: bubbles agent -s NAME",
        "请在 bubbles agent 里输入 /session 名字，或者这样启动：bubbles agent -s 名字",
    ),
    # /pair
    "pair help": (
        "/pair CODE lets in, as a guest, whoever was given that code; /pair CODE owner as yourself, on another account of yours.",
        "/pair 配对码 允许收到该配对码的人以客人身份使用；/pair 配对码 owner 用于你自己的另一个账号。",
    ),
    "pair not here": ("Codes are for a private chat with me, or for the terminal.", "请在与我的私聊或终端里使用配对码。"),
    "no such code": (
        "No channel that runs knows that code. It is good for an hour, and once; whoever wants to be let in gets another by writing again.",
        "正在运行的渠道都不认识这个配对码。配对码一小时内有效，只能用一次；对方再发一条消息即可得到新的。",
    ),
    "paired guest": ("Let in as a guest: {name} ({channel}, id {id}).", "已允许以客人身份使用：{name}（{channel}，id {id}）。"),
    "paired owner": ("Let in as the owner: {name} ({channel}, id {id}).", "已设为主人：{name}（{channel}，id {id}）。"),
    # /usage
    "usage today": ("Today: {sum}", "今天：{sum}"),
    "usage session": ("This session: {sum}", "本会话：{sum}"),
    "usage month": ("This month: {sum}", "本月：{sum}"),
    "usage unattended": ("  of it begun by nobody: {sum}", "  其中无人发起的：{sum}"),
    "usage model": ("  {model} ({provider}): {sum}", "  模型 {model}（{provider}）：{sum}"),
    "usage sum": ("{tokens} tokens in {requests}", "{requests}，{tokens} 个 token"),
    "usage cost": ("{tokens} tokens in {requests}, {cost}", "{requests}，{tokens} 个 token，费用 {cost}"),
    "one request": ("1 request", "1 次请求"),
    "requests": ("{n} requests", "{n} 次请求"),
    "usage none": ("nothing", "没有"),
    "usage other models": ("  {n} other models: {sum}", "  另外 {n} 个模型：{sum}"),
    "usage no model": ("unknown", "未知"),
    "usage unpriced": (
        "In no cost, because the price of the model is not known: {tokens} tokens in {requests} of this month.",
        "本月有 {requests}（{tokens} 个 token）没有计入费用：不知道所用模型的价格。",
    ),
    "usage uncounted": (
        "In no count, because they were cut short or the provider does not count: {requests} of this month.",
        "本月有 {requests}不知道用了多少 token：中途被取消，或者服务商没有给出统计。",
    ),
    "usage failed": (
        "Failed midway, and may be on the bill: {requests} of this month, of about {tokens} tokens; budgets count those.",
        "本月有 {requests}中途失败，可能仍会计费：约 {tokens} 个 token，已计入额度。",
    ),
    "usage budget": ("Budget of today: {spent} of {limit}{left}", "今天的额度：已用 {spent} / {limit}{left}"),
    "usage system budget": (
        "Budget of today for what nobody began: {spent} of {limit}{left}",
        "今天无人发起任务的额度：已用 {spent} / {limit}{left}",
    ),
    "usage used up": ("; used up until {ends}", "，已用完，{ends} 恢复"),
    "usage unread": (
        "Some of what was written down cannot be read. In a terminal: bubbles doctor usage",
        "有些用量记录无法读取。请在终端运行：bubbles doctor usage",
    ),
    # /model
    "why": ("Why: {why}", "原因：{why}"),
    "models": ("Can be asked: {names}", "可以使用：{names}"),
    "and more": (" and {n} more", "，还有 {n} 个"),
    "model help": (
        "/model NAME or /model PROVIDER/NAME changes it here, /model - takes that back.",
        "/model 模型 或 /model 服务商/模型 更换，/model - 恢复默认。",
    ),
    "model nowhere": (
        "No provider that is set up answers for {model}; nothing was changed. /model says what can be asked.",
        "没有可用的服务商能处理 {model}，没有做任何更改。发送 /model 查看可以用什么。",
    ),
    # /config
    "setting": ("{key}: {value}", "{key}：{value}"),
    "own setting": ("{key}: {value}   (this session)", "{key}：{value}   （本会话）"),
    "lent": (
        "lent: {value}   (while a terminal with --here is open)",
        "临时借用：{value}   （带 --here 的终端打开期间）",
    ),
    "unset": ("\u2013", "\u2013"),
    "config help": ("/config KEY VALUE changes one here, /config KEY - takes that back.", "/config 项 值 更改，/config 项 - 恢复默认。"),
    "no setting": ("There is no setting {key}. There are: {names}.", "没有 {key} 这个设置。可用的有：{names}。"),
    "no setting but": ("There is no setting {key}. Did you mean {near}?", "没有 {key} 这个设置，是想用 {near} 吗？"),
    "wrong value": ("{key} cannot be {value}. It is {allowed}.", "{key} 不能设为 {value}。它应该是{allowed}。"),
    "not built": (
        "{key} cannot be {value} yet: that is not built. It can be {allowed}.",
        "{key} 还不能设为 {value}：这个功能尚未实现。现在可以是{allowed}。",
    ),
    "settings broken": (
        "A setting of this session does not fit: {keys}. Take it back first: /config {key} -",
        "这个会话的设置有错：{keys}。请先恢复默认：/config {key} -",
    ),
    "allowed model": ("a model's name, without spaces", "模型的名字，不含空格"),
    "allowed provider": ("one of: {names}", "以下之一：{names}"),
    "allowed system_prompt": ("any text", "任意文字"),
    "allowed temperature": ("a number from 0 to 2", " 0 到 2 之间的数"),
    "allowed language": ("one of: {names}", "以下之一：{names}"),
    "allowed timezone": ("a time zone such as Europe/Berlin", "时区，例如 Asia/Shanghai"),
    "allowed sandbox": ("one of: {names}", "以下之一：{names}"),
    "allowed network": ("one of: {names}", "以下之一：{names}"),
    "allowed workspaces": ("a directory's whole path", "目录的完整路径"),
    # /config sandbox, /config network: what was asked for cannot be had, or what follows from it
    "unset but": ("\u2013 (here: {value})", "\u2013（这里是 {value}）"),
    "network not kept": (
        "network cannot be {network} here: the sandbox {sandbox} cannot keep commands from the network. bwrap can: /config sandbox bwrap",
        "network 在这里不能设为 {network}：沙箱 {sandbox} 无法限制命令的网络。bwrap 可以：/config sandbox bwrap",
    ),
    "sandbox keeps less": (
        "sandbox cannot be {sandbox} here: it cannot keep commands to the network rule {network}. Loosen that first: /config network host",
        "sandbox 在这里不能设为 {sandbox}：它无法遵守网络规则 {network}。请先放宽：/config network host",
    ),
    "no jail": (
        "sandbox cannot be bwrap here, so nothing was changed: {why}.\nWhat helps: {remedy}",
        "sandbox 在这里不能设为 bwrap，没有做任何更改：{why}。\n解决办法：{remedy}",
    ),
    "jailed": (
        "Each command now has a jail: it sees this session's files, what was lent to it, and of the network: {network}.",
        "现在每个命令都在自己的隔离环境里运行：只能看到本会话的文件和借给它的目录，网络：{network}。",
    ),
    "not jailed": (
        "No jail holds this session's commands: they can read and change what you can, other sessions and keys included.",
        "本会话的命令没有隔离：你能读写的它都能读写，包括其他会话和密钥。",
    ),
    "network open": (
        "Commands now reach what runs on this machine and in your network, too.",
        "命令现在也能访问本机和你网络里的服务。",
    ),
    "still forbidden": (
        "What started agentd forbids commands all the same (docs/units.md): {what}.",
        "无论哪种沙箱，启动 agentd 的环境仍然禁止命令（docs/units.md）：{what}。",
    ),
    "forbids rights": ("more rights than you have (sudo)", "获得更高权限（sudo）"),
    "forbids home": ("writing in your home", "写入你的主目录"),
    "forbids system": ("writing in the system's directories", "写入系统目录"),
    "forbids tmp": ("the machine's own /tmp", "访问本机的 /tmp"),
    "forbids manager": ("asking your service manager", "调用你的服务管理器"),
    "workspace help": (
        "/config workspace add PATH [rw] lets the tools of this session use a directory, /config workspace remove PATH takes it back.",
        "/config workspace add 路径 [rw] 允许本会话的工具使用一个目录，/config workspace remove 路径 收回。",
    ),
    "workspace refused": ("{path} cannot be a workspace: {why}.", "{path} 不能作为工作目录：{why}。"),
    "not there": ("there is no such directory", "没有这个目录"),
    "no workspace": ("{path} is not among this session's own workspaces.", "{path} 不在本会话自己的工作目录里。"),
    "owner's workspace": (
        "{path} comes from the settings of the whole installation (tools.workspaces), and is changed there.",
        "{path} 来自整个安装的设置（tools.workspaces），请在那里更改。",
    ),
    "set aside": (
        "This session has a list of its own now; that of the installation ({paths}) counts here again after: /config workspaces -",
        "本会话现在有自己的列表；整个安装的列表（{paths}）在 /config workspaces - 之后才重新生效。",
    ),
    # Why a directory may not be lent, by what `bubbles.lending` says
    "it is not an absolute path": ("write its whole path", "请写完整路径"),
    "it holds far more than one project": ("it holds far more than one project", "它包含的远不止一个项目"),
    "it holds, or lies in, Bubbles' own files": ("it holds, or lies in, Bubbles' own files", "它包含 Bubbles 自己的文件，或者就在其中"),
    "it belongs to the system": ("it belongs to the system", "它属于系统"),
    "it is not a directory": ("it is not a directory", "它不是目录"),
}


def told(key: str, language: str, /, **values: object) -> str:
    """The text `key` in a language, "en" or "zh".

    >>> told("busy", "en", name="new")
    'Something is running. Send /stop first, then /new.'
    """
    return TEXTS[key][language == "zh"].format(**values)
