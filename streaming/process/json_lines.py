"""One JSON object per log line. Values with a name in the message, and ``extra``, are fields."""

from __future__ import annotations

import logging
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from conf.masking import masked, masked_values
from streaming.process.log_record import fields, message_and_facts, utc


class JsonLines(JsonFormatter):
    def __init__(self) -> None:
        super().__init__(json_default=lambda each: masked(str(each)), json_ensure_ascii=False)

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        message, facts = message_and_facts(record)
        log_data |= {
            "time": utc(record),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **facts,
            **fields(record, facts),
        }
        if (traceback := message_dict.get("exc_info")) is not None:
            log_data["exception"] = traceback

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = masked_values(log_data)
        return shown
