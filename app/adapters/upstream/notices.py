"""What a running tool says, as far as anybody asked for it: progress and log messages, each shaped as MCP has it.

Knows the two notifications of a tool that runs. Whatever else a server says, or says of another request, is nothing
that anybody hears of.
"""

from typing import Final

from app.core.strict_json import JsonObject, JsonValue
from app.ports import LOG_LEVELS, Listener, LogMessage, Notice, Progress

MAX_LOGGER_CHARS: Final = 256


def tell(listener: Listener | None, message: JsonObject, token: int) -> None:
    """Hand a message on to who asked for such; `token` is the one that its request gave out."""
    notice = None if listener is None else _notice(listener, message, token)
    if listener is not None and notice is not None:
        listener.tell(notice)


def _notice(listener: Listener, message: JsonObject, token: int) -> Notice | None:
    params = message.get("params")
    if not isinstance(params, dict) or "id" in message:
        return None
    match message.get("method"):
        case "notifications/progress" if listener.hears_progress:
            return _progress(params, token)
        case "notifications/message" if listener.log_level is not None:
            return _log_message(params, listener.log_level)
    return None


def _progress(params: JsonObject, token: int) -> Progress | None:
    given, progress = params.get("progressToken"), _number(params.get("progress"))
    total, message = params.get("total"), params.get("message")
    if type(given) is not int or given != token or progress is None or not isinstance(message, str | None):
        return None
    return Progress(progress=progress, total=_number(total), message=message)


def _log_message(params: JsonObject, least: str) -> LogMessage | None:
    level, logger = params.get("level"), params.get("logger")
    if not isinstance(level, str) or level not in LOG_LEVELS or "data" not in params:
        return None
    if LOG_LEVELS.index(level) < LOG_LEVELS.index(least) or not isinstance(logger, str | None):
        return None
    return LogMessage(level=level, data=params["data"], logger=None if logger is None else logger[:MAX_LOGGER_CHARS])


def _number(value: JsonValue) -> int | float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value
