"""Generates the OpenAPI 3.1 document of the control port from its operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lab.control.operations import Operation, Stream

OPENAPI_VERSION: Final = "3.1.0"
ROLE: Final = "x-role"
_REFERENCE: Final = "#/components/schemas/{name}"
_PUBLISHED: Final = (b"lab.control.routes.", b"broker.control.routes.")
"""(module prefix in msgspec's schema names, prefix in the document instead).

If structs have the same name, msgspec prefixes their schema names with their modules. The document has the prefix
of an earlier release, because users' programs refer to the published names.
"""
_ERROR: Final = {
    "description": "The call failed; the error says why and, if possible, what to do.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            },
            "example": {"error": "there is no topic ordres; did you mean orders?"},
        }
    },
}


def document(
    operations: Mapping[tuple[str, str], Operation], *, version: str, with_token: bool
) -> dict[str, Any]:
    """The OpenAPI document: paths, schemas and examples, from the declarations and docstrings of the operations."""
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for each in operations.values():
        described = paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
        if with_token and not each.open_to_all:
            described["security"] = [{"token": [str(each.role)]}]
    found: dict[str, Any] = {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Odradek control port",
            "version": version,
            "description": "Inject failures into a running broker, advance its clock, and observe it. A token has a role: "
            "look, stage or stop. Each role may do what the ones before it may; x-role is the role that a call requires.",
        },
        "paths": paths,
        "components": {"schemas": schemas.components},
    }
    if with_token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


class _Schemas:
    """JSON schemas of the structs that the operations use, nested ones included."""

    def __init__(self, operations: Mapping[tuple[str, str], Operation]) -> None:
        types = list(
            {
                type_: None
                for each in operations.values()
                for type_ in (each.params, each.body, each.answer)
                if type_ is not None and type_ is not Stream
            }
        )
        made = msgspec.json.encode(msgspec.json.schema_components(types, ref_template=_REFERENCE))
        schemas, self.components = msgspec.json.decode(made.replace(*_PUBLISHED))
        self._by_type = dict(zip(types, schemas, strict=True))

    def of(self, type_: Any) -> dict[str, Any]:
        schema: dict[str, Any] = self._by_type[type_]
        return schema

    def properties(self, type_: Any) -> tuple[dict[str, Any], list[str]]:
        """The fields of a struct, and the names of the required ones."""
        schema = self.components[self.of(type_)["$ref"].rpartition("/")[2]]
        return schema["properties"], schema.get("required", [])


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.sentence,
        "tags": [_tag(operation)],
        "responses": {
            "200": {
                "description": operation.sentence,
                "content": {operation.content_type: _content(operation, schemas)},
            },
            "4XX": _ERROR,
        },
    }
    if operation.description:
        found["description"] = operation.description
    if operation.params is not None:
        found["parameters"] = _parameters(operation, schemas)
    if operation.body is not None:
        content = {"schema": schemas.of(operation.body), "example": operation.body_example}
        is_required = not operation.function.__defaults__
        found["requestBody"] = {"required": is_required, "content": {"application/json": content}}
    if operation.open_to_all:
        found["security"] = []
    else:
        found[ROLE] = str(operation.role)
    return found


def _content(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    if operation.answer is Stream:
        return {"schema": {"type": "string"}, "example": operation.answer_example}
    return {"schema": schemas.of(operation.answer), "example": operation.answer_example}


def _parameters(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    properties, required = schemas.properties(operation.params)
    return [
        {
            "name": name,
            "in": "path" if name in operation.path_names else "query",
            "required": name in required,
            "description": schema.get("description", name),
            "schema": {key: value for key, value in schema.items() if key != "description"},
        }
        for name, schema in properties.items()
    ]


def _tag(operation: Operation) -> str:
    return operation.function.__module__.rpartition(".")[2]
