"""The JSON schema of a file, with which an editor completes it and marks what would be refused."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from conf.files.models import Table

DIALECT = "http://json-schema.org/draft-07/schema#"  # what editors of TOML understand


class _ForToml(GenerateJsonSchema):
    """TOML has no null, and the keys' names need no titles."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def json_schema(model: type[Table]) -> dict[str, Any]:
    return {"$schema": DIALECT, **model.model_json_schema(schema_generator=_ForToml)}
