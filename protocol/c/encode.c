/* Encodes messages and records: the twin of protocol/encode.py and of the writers of protocol/schema.py.
 *
 * If a value cannot be written here, because it has another type or is out of range, the twin is called: it writes the
 * value, or raises the error. */

#include "core.h"

typedef struct {
    Buffer out;
    PyObject *chunks; /* NULL if all bytes are one chunk */
    Py_ssize_t left;  /* number of array elements left before the message counts as long */
    int in_tags;
    bool flexible, strict;
} Writer;

static int write_value(Writer *writer, const Field *field, PyObject *value, bool nullable);
static int write_struct(Writer *writer, const Struct *written, PyObject *owner);

static int give_up(void)
{
    PyErr_SetString(PyExc_ValueError, "this is left to the twin");
    return -1;
}

static int write_length(Writer *writer, bool is_string, Py_ssize_t length)
{
    if (writer->flexible) return buffer_varint(&writer->out, (uint64_t)(length + 1));
    if (length > (is_string ? INT16_MAX : INT32_MAX)) return give_up();
    uint8_t *at = buffer_extend(&writer->out, is_string ? 2 : 4);
    if (at == NULL) return -1;
    if (is_string)
        put16(at, (uint16_t)length);
    else
        put32(at, (uint32_t)length);
    return 0;
}

static int write_null(Writer *writer, bool is_string, bool nullable)
{
    return nullable ? write_length(writer, is_string, -1) : give_up();
}

static int write_string(Writer *writer, PyObject *value)
{
    Py_ssize_t length;
    if (!PyUnicode_Check(value)) return give_up();
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text == NULL) return -1;
    if (length > names.string_bytes_max) return give_up();
    return write_length(writer, true, length) < 0 ? -1 : buffer_put(&writer->out, text, length);
}

/* Turn the bytes written so far into a chunk. */
static int end_chunk(Writer *writer)
{
    PyObject *chunk = PyBytes_FromStringAndSize((const char *)writer->out.data, writer->out.size);
    if (chunk == NULL) return -1;
    int failed = PyList_Append(writer->chunks, chunk);
    Py_DECREF(chunk);
    writer->out.size = 0;
    return failed;
}

static int copy_buffer(Writer *writer, PyObject *value, Py_ssize_t length)
{
    if (PyBytes_CheckExact(value)) return buffer_put(&writer->out, PyBytes_AS_STRING(value), length);
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) return -1;
    int failed = view.len == length ? buffer_put(&writer->out, view.buf, length) : give_up();
    PyBuffer_Release(&view);
    return failed;
}

static bool is_chunk(PyObject *value)
{
    return PyBytes_Check(value) || PyByteArray_Check(value) || PyMemoryView_Check(value);
}

/* Bytes. Above a limit they are a chunk of their own. */
static int write_bytes(Writer *writer, PyObject *value)
{
    if (!is_chunk(value)) return give_up();
    Py_ssize_t length = PyObject_Size(value);
    if (length < 0 || write_length(writer, false, length) < 0) return -1;
    if (writer->chunks == NULL || writer->in_tags || length <= names.inline_bytes_max)
        return copy_buffer(writer, value, length);
    return end_chunk(writer) < 0 ? -1 : PyList_Append(writer->chunks, value);
}

/* Records: one buffer or several, never copied. */
static int write_records(Writer *writer, PyObject *value)
{
    if (writer->in_tags || writer->chunks == NULL) return write_bytes(writer, value);
    bool are_several = PyList_Check(value) || PyTuple_Check(value);
    if (!are_several && !is_chunk(value)) return give_up();
    Py_ssize_t length = are_several ? 0 : PyObject_Size(value);
    for (Py_ssize_t at = 0; are_several && at < PySequence_Fast_GET_SIZE(value); at++) {
        Py_ssize_t size = PyObject_Size(PySequence_Fast_GET_ITEM(value, at));
        if (size < 0) return -1;
        length += size;
    }
    if (length < 0 || write_length(writer, false, length) < 0) return -1;
    if (length == 0) return 0;
    if (end_chunk(writer) < 0) return -1;
    if (!are_several) return PyList_Append(writer->chunks, value);
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(value); at++)
        if (PyList_Append(writer->chunks, PySequence_Fast_GET_ITEM(value, at)) < 0) return -1;
    return 0;
}

static int write_nested(Writer *writer, const Field *field, PyObject *value, bool nullable)
{
    if (!nullable) return write_struct(writer, field->nested, value);
    bool is_tagged = field->kind == KIND_TAGGED_STRUCT;
    uint8_t marker = value == Py_None ? (is_tagged ? 0 : 0xFF) : 1;
    if (buffer_put(&writer->out, &marker, 1) < 0) return -1;
    return value == Py_None ? 0 : write_struct(writer, field->nested, value);
}

static int write_single(Writer *writer, const Field *field, PyObject *value, bool nullable)
{
    uint8_t *at;
    switch (field->kind) {
    case KIND_STRING:
        return value == Py_None ? write_null(writer, true, nullable) : write_string(writer, value);
    case KIND_BYTES:
        return value == Py_None ? write_null(writer, false, nullable) : write_bytes(writer, value);
    case KIND_RECORDS:
        return value == Py_None ? write_null(writer, false, nullable) : write_records(writer, value);
    case KIND_STRUCT:
    case KIND_TAGGED_STRUCT:
        return write_nested(writer, field, value, nullable);
    case KIND_UUID:
        at = buffer_extend(&writer->out, 16);
        return at == NULL ? -1 : write_uuid(at, value);
    default:
        at = buffer_extend(&writer->out, SIZE_OF_KIND[field->kind]);
        return at == NULL ? -1 : write_number(at, field->kind, value);
    }
}

static int write_elements(Writer *writer, const Field *field, PyObject *elements, Py_ssize_t count)
{
    int failed = 0;
    for (Py_ssize_t at = 0; !failed && at < count; at++) {
        /* Writing an element may run Python code, which may change the list. */
        if (at >= PySequence_Fast_GET_SIZE(elements)) return give_up();
        PyObject *element = Py_NewRef(PySequence_Fast_GET_ITEM(elements, at));
        /* An element of a record's array has the nullability of its own type, which no array of ours uses. */
        failed = write_single(writer, field, element, false);
        Py_DECREF(element);
    }
    return failed;
}

static int write_array(Writer *writer, const Field *field, PyObject *value, bool nullable)
{
    if (value == Py_None) return write_null(writer, false, nullable);
    if (!PyList_Check(value) && !PyTuple_Check(value)) return give_up();
    Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
    if (write_length(writer, false, count) < 0) return -1;
    bool is_one_piece = SIZE_OF_KIND[field->kind] && field->kind != KIND_UUID;
    if (!is_one_piece && !writer->strict) {
        writer->left -= count;
        if (writer->left < 0) {
            PyErr_SetNone(names.long_message);
            return -1;
        }
    }
    return write_elements(writer, field, value, count);
}

static int write_value(Writer *writer, const Field *field, PyObject *value, bool nullable)
{
    return field->is_array ? write_array(writer, field, value, nullable) : write_single(writer, field, value, nullable);
}

/* Whether a tagged field has to be written; -1 with an exception. */
static int differs(const Writer *writer, const Field *field, PyObject *value)
{
    if (value == field->default_value) return 0;
    bool is_sequence = PyList_Check(value) || PyTuple_Check(value);
    if (writer->strict) {
        /* A list may be an empty array like a tuple. None is not an empty array. */
        bool defaults_to_none_there =
            PyTuple_Check(field->default_value) && PyTuple_GET_SIZE(field->default_value) == 0;
        if (defaults_to_none_there && is_sequence && PySequence_Fast_GET_SIZE(value) == 0) return 0;
        int same = PyObject_RichCompareBool(value, field->default_value, Py_EQ);
        return same < 0 ? -1 : !same;
    }
    if (field->default_value == Py_None) return value != Py_None;
    if (field->is_array) return is_sequence ? PySequence_Fast_GET_SIZE(value) > 0 : give_up();
    return PyObject_RichCompareBool(value, field->default_value, Py_NE);
}

/* A tagged field (KIP-482): number, size, bytes. The size is known last, and is then inserted. */
static int write_tag(Writer *writer, const Field *field, PyObject *value)
{
    Buffer *out = &writer->out;
    if (buffer_varint(out, (uint64_t)field->tag) < 0) return -1;
    Py_ssize_t start = out->size;
    /* In a message a tagged field that is null is left out. In a record it may be written as null. */
    if (write_value(writer, field, value, writer->strict && field->nullable) < 0) return -1;
    uint8_t size[VARLONG_BYTES_MAX];
    Py_ssize_t body = out->size - start, size_bytes = varint_put(size, (uint64_t)body);
    if (buffer_extend(out, size_bytes) == NULL) return -1;
    memmove(out->data + start + size_bytes, out->data + start, (size_t)body);
    memcpy(out->data + start, size, (size_t)size_bytes);
    return 0;
}

static int write_tags(Writer *writer, const Struct *written, PyObject *owner)
{
    Py_ssize_t at_count = writer->out.size;
    if (buffer_extend(&writer->out, 1) == NULL) return -1;
    uint8_t count = 0;
    int failed = 0;
    writer->in_tags++;
    for (Py_ssize_t at = 0; !failed && at < written->tagged_count; at++) {
        const Field *field = written->tagged[at];
        PyObject *value = field_of(owner, written, field);
        int is_written = value == NULL ? -1 : differs(writer, field, value);
        failed = is_written < 0 ? -1 : is_written ? write_tag(writer, field, value) : 0;
        count += is_written > 0;
        Py_XDECREF(value);
    }
    writer->in_tags--;
    writer->out.data[at_count] = count;
    return failed;
}

static int write_struct(Writer *writer, const Struct *written, PyObject *owner)
{
    for (Py_ssize_t at = 0; at < written->count; at++) {
        const Field *field = &written->fields[at];
        if (field->tag >= 0) continue;
        PyObject *value = field_of(owner, written, field);
        if (value == NULL) return -1;
        int failed = write_value(writer, field, value, field->nullable);
        Py_DECREF(value);
        if (failed) return -1;
    }
    return writer->flexible ? write_tags(writer, written, owner) : 0;
}

static void begin(Writer *writer, const Program *program)
{
    buffer_begin(&writer->out);
    writer->chunks = NULL;
    writer->left = names.elements_at_once;
    writer->in_tags = 0;
    writer->flexible = program->flexible;
    writer->strict = program->strict;
}

PyObject *program_encode(Program *program, PyObject *message)
{
    Writer writer;
    begin(&writer, program);
    writer.chunks = PyList_New(0);
    if (writer.chunks == NULL) return NULL;
    int failed = write_struct(&writer, program->root, message);
    if (!failed && writer.out.size) failed = end_chunk(&writer);
    buffer_end(&writer.out);
    if (!failed) return writer.chunks;
    Py_DECREF(writer.chunks);
    if (PyErr_ExceptionMatches(names.long_message)) return NULL;
    PyErr_Clear();
    return PyObject_CallOneArg(program->fallback, message);
}

/* encode_record(record, prefix) */
PyObject *program_encode_record(Program *program, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "encode_record takes a record and a prefix");
        return NULL;
    }
    Writer writer;
    begin(&writer, program);
    int failed = 0;
    if (args[1] != Py_None) failed = write_number(buffer_extend(&writer.out, 2), KIND_INT16, args[1]);
    if (!failed) failed = write_struct(&writer, program->root, args[0]);
    PyObject *bytes =
        failed ? NULL : PyBytes_FromStringAndSize((const char *)writer.out.data, writer.out.size);
    buffer_end(&writer.out);
    if (!failed) return bytes;
    PyErr_Clear();
    return PyObject_Vectorcall(program->fallback, args, 2, NULL);
}
