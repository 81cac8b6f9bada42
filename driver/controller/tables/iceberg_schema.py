"""The schema of a table in Iceberg: the records' columns, and the typed ones of its topic.

Field ids are those of the files. A column that comes back with a narrower type than it had, such as INT after
BIGINT, keeps the wide one, since old files have it: the ids of both are one, and Iceberg's readers read the
narrow type as the wide one, never the other way round.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StructType,
)

from sparklog.node.remote_log.machine.value_schema import ValueSchemaError
from sparklog.node.remote_log.segments.segment_format import segment_schema
from sparklog.node.remote_log.segments.typed_columns import TypedColumns

_THE_ADDED_ONE: Final = -1

logger = logging.getLogger(__name__)


def schema_update(
    metadata: TableMetadata, value_schema: str
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates after which the table has the columns of this schema, and what they require.

    There are none if the table has them, or if another version of sparklog has accepted the schema.
    """
    try:
        wanted = pyarrow_to_schema(segment_schema(TypedColumns.of(value_schema)))
    except ValueSchemaError as error:
        logger.error("The columns of the table at %s stay: %s", metadata.location, error)
        return (), ()
    known = _types_by_id(field for schema in metadata.schemas for field in schema.fields)
    struct = StructType(*(_widened(field, known) for field in wanted.fields))
    if struct == metadata.schema().as_struct():
        return (), ()
    requirements = (AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),)
    logger.info("The table at %s gets the columns of %r", metadata.location, value_schema)
    for schema in metadata.schemas:
        if schema.as_struct() == struct:
            return (_current(schema.schema_id),), requirements
    schema_id = 1 + max(schema.schema_id for schema in metadata.schemas)
    added = AddSchemaUpdate(schema=Schema(*struct.fields, schema_id=schema_id))
    return (added, _current(_THE_ADDED_ONE)), requirements


def has_fields_of(found: Schema, files: Schema) -> bool:
    """Return whether a table has the fields of the files, by the same ids; it may have further ones."""
    by_id = {field.field_id: field for field in found.fields}
    return all(
        (field := by_id.get(each.field_id)) is not None
        and field.name == each.name
        and field.field_type == each.field_type
        for each in files.fields
    )


def _current(schema_id: int) -> SetCurrentSchemaUpdate:
    return SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id})


def _types_by_id(fields: Iterable[NestedField]) -> dict[int, list[IcebergType]]:
    """Return all types that fields have had, those inside of others included."""
    found: dict[int, list[IcebergType]] = {}

    def add(field_id: int, field_type: IcebergType) -> None:
        found.setdefault(field_id, []).append(field_type)
        match field_type:
            case StructType():
                for field in field_type.fields:
                    add(field.field_id, field.field_type)
            case ListType():
                add(field_type.element_id, field_type.element_type)

    for field in fields:
        add(field.field_id, field.field_type)
    return found


def _widened(field: NestedField, known: Mapping[int, list[IcebergType]]) -> NestedField:
    widest = _widest(field.field_id, field.field_type, known)
    return NestedField(field.field_id, field.name, widest, required=field.required)


def _widest(field_id: int, field_type: IcebergType, known: Mapping[int, list[IcebergType]]) -> IcebergType:
    before = known.get(field_id, [])
    match field_type:
        case StructType():
            return StructType(*(_widened(field, known) for field in field_type.fields))
        case ListType():
            element = _widest(field_type.element_id, field_type.element_type, known)
            return ListType(field_type.element_id, element, element_required=field_type.element_required)
        case IntegerType() if LongType() in before:
            return LongType()
        case FloatType() if DoubleType() in before:
            return DoubleType()
        case DecimalType():
            precisions = [each.precision for each in before if isinstance(each, DecimalType)]
            return DecimalType(max([field_type.precision, *precisions]), field_type.scale)
    return field_type
