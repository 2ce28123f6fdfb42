/* Decodes messages: the twin of protocol/decode.py, which describes what is accepted and why. */

#include "core.h"

/* Above this size a tuple grows with its elements, because the count comes from the sender. */
#define ELEMENTS_TRUSTED 1024

typedef struct {
    const uint8_t *data;
    Py_ssize_t at, end;
    PyObject *owner; /* the object with the data, of which records are views */
    Py_ssize_t left; /* number of array elements left before the message counts as long */
    int in_tags;     /* whether it is inside of a tag, where each array is counted on its own */
    bool flexible;
} Reader;

static PyObject *read_value(Reader *reader, const Field *field);
static PyObject *read_struct(Reader *reader, const Struct *read);

static int cut(void)
{
    PyErr_SetString(names.malformed_request, "the message ends too early");
    return -1;
}

static inline Py_ssize_t remaining(const Reader *reader) { return reader->end - reader->at; }

/* An unsigned varint of 31 bits. */
static int read_varint(Reader *reader, Py_ssize_t *out)
{
    if (reader->at >= reader->end) return cut();
    uint64_t byte = reader->data[reader->at++], value = byte & 127;
    for (int shift = 7; byte > 127; shift += 7) {
        if (shift > 28) {
            PyErr_SetString(names.malformed_request, "a varint of more than five bytes");
            return -1;
        }
        if (reader->at >= reader->end) return cut();
        byte = reader->data[reader->at++];
        value |= (byte & 127) << shift;
    }
    if (value > INT32_MAX) {
        PyErr_Format(names.malformed_request, "the varint %llu is too large for a size", (unsigned long long)value);
        return -1;
    }
    *out = (Py_ssize_t)value;
    return 0;
}

/* The length of a string, or of anything else; negative for null. */
static int read_length(Reader *reader, bool is_string, Py_ssize_t *out)
{
    if (reader->flexible) {
        if (read_varint(reader, out) < 0) return -1;
        *out -= 1;
        return 0;
    }
    Py_ssize_t size = is_string ? 2 : 4;
    if (remaining(reader) < size) return cut();
    const uint8_t *at = reader->data + reader->at;
    *out = is_string ? (int16_t)get16(at) : (int32_t)get32(at);
    reader->at += size;
    return 0;
}

static PyObject *null_or_refused(const Field *field)
{
    if (field->nullable) return Py_NewRef(Py_None);
    PyErr_Format(names.malformed_request, "%U is null, but is not nullable", field->name);
    return NULL;
}

static PyObject *read_sized(Reader *reader, const Field *field)
{
    Py_ssize_t length;
    bool is_string = field->kind == KIND_STRING;
    if (read_length(reader, is_string, &length) < 0) return NULL;
    if (length < 0) return null_or_refused(field);
    if (is_string && length > names.string_bytes_max) {
        PyErr_Format(names.malformed_request, "%U is a string of %zd bytes; the maximum is %zd", field->name, length,
                     names.string_bytes_max);
        return NULL;
    }
    if (length > remaining(reader)) {
        cut();
        return NULL;
    }
    Py_ssize_t start = reader->at;
    const char *data = (const char *)reader->data + start;
    reader->at += length;
    if (is_string) return PyUnicode_DecodeUTF8(data, length, "replace");
    if (field->kind == KIND_BYTES || PyBytes_CheckExact(reader->owner)) return PyBytes_FromStringAndSize(data, length);
    return PySequence_GetSlice(reader->owner, start, start + length);
}

static PyObject *read_uuid(Reader *reader)
{
    static const uint8_t zero[16];
    if (remaining(reader) < 16) {
        cut();
        return NULL;
    }
    const uint8_t *raw = reader->data + reader->at;
    reader->at += 16;
    if (memcmp(raw, zero, 16) == 0) return Py_NewRef(Py_None);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)raw, 16);
    if (bytes == NULL) return NULL;
    PyObject *made = PyObject_CallOneArg(names.uuid_of_bytes, bytes);
    Py_DECREF(bytes);
    return made;
}

static PyObject *read_fixed(Reader *reader, Kind kind)
{
    if (remaining(reader) < SIZE_OF_KIND[kind]) {
        cut();
        return NULL;
    }
    const uint8_t *at = reader->data + reader->at;
    reader->at += SIZE_OF_KIND[kind];
    return read_number(at, kind);
}

/* KIP-893: a nullable struct begins with a byte that is negative for null. */
static PyObject *read_nested(Reader *reader, const Field *field)
{
    if (field->nullable) {
        if (reader->at >= reader->end) {
            cut();
            return NULL;
        }
        if ((int8_t)reader->data[reader->at++] < 0) return Py_NewRef(Py_None);
    }
    return read_struct(reader, field->nested);
}

/* One value, or one element of an array: an element is never null. */
static PyObject *read_single(Reader *reader, const Field *field)
{
    switch (field->kind) {
    case KIND_STRING:
    case KIND_BYTES:
    case KIND_RECORDS:
        return read_sized(reader, field);
    case KIND_STRUCT:
        return read_nested(reader, field);
    case KIND_UUID:
        return read_uuid(reader);
    default:
        return read_fixed(reader, field->kind);
    }
}

static PyObject *read_element(Reader *reader, const Field *field)
{
    if (field->kind == KIND_STRUCT) return read_struct(reader, field->nested);
    Field element = *field;
    element.nullable = false;
    return read_single(reader, &element);
}

static PyObject *read_elements(Reader *reader, const Field *field, Py_ssize_t count)
{
    if (count > ELEMENTS_TRUSTED && SIZE_OF_KIND[field->kind] == 0) {
        PyObject *list = PyList_New(0);
        for (Py_ssize_t at = 0; list != NULL && at < count; at++) {
            PyObject *element = read_element(reader, field);
            if (element == NULL || PyList_Append(list, element) < 0) Py_CLEAR(list);
            Py_XDECREF(element);
        }
        PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
        Py_XDECREF(list);
        return tuple;
    }
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t at = 0; tuple != NULL && at < count; at++) {
        PyObject *element = read_element(reader, field);
        if (element == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, at, element);
    }
    return tuple;
}

static PyObject *read_array(Reader *reader, const Field *field)
{
    Py_ssize_t count;
    if (read_length(reader, false, &count) < 0) return NULL;
    if (count < 0) return null_or_refused(field);
    if (count > remaining(reader)) {
        PyErr_Format(names.malformed_request, "%U claims to have %zd elements, but only %zd bytes are left",
                     field->name, count, remaining(reader));
        return NULL;
    }
    if (!reader->in_tags) reader->left -= count;
    if (reader->in_tags ? count > names.elements_at_once : reader->left < 0) {
        PyErr_SetNone(names.long_message);
        return NULL;
    }
    if (count * SIZE_OF_KIND[field->kind] > remaining(reader)) {
        cut();
        return NULL;
    }
    return read_elements(reader, field, count);
}

static PyObject *read_value(Reader *reader, const Field *field)
{
    return field->is_array ? read_array(reader, field) : read_single(reader, field);
}

static int refuse_many_tags(Py_ssize_t count)
{
    if (count <= names.tags_max) return 0;
    PyErr_Format(names.malformed_request, "a struct has more than %zd tagged fields", names.tags_max);
    return -1;
}

static int read_tag(Reader *reader, const Struct *read, PyObject *owner)
{
    Py_ssize_t tag, size;
    if (read_varint(reader, &tag) < 0 || read_varint(reader, &size) < 0) return -1;
    for (Py_ssize_t at = 0; read != NULL && at < read->tagged_count; at++) {
        const Field *field = read->tagged[at];
        if (field->tag == tag) return set_field_of(owner, field, read_value(reader, field));
    }
    if (size > remaining(reader)) return cut();
    reader->at += size;
    return 0;
}

/* The tagged fields of one struct. They are skipped if `read` is NULL. */
static int read_tags(Reader *reader, const Struct *read, PyObject *owner)
{
    Py_ssize_t count;
    if (read_varint(reader, &count) < 0 || refuse_many_tags(count) < 0) return -1;
    int failed = 0;
    reader->in_tags++;
    while (!failed && count-- > 0) failed = read_tag(reader, read, owner);
    reader->in_tags--;
    return failed;
}

static PyObject *read_struct(Reader *reader, const Struct *read)
{
    PyObject *made = read->made->tp_alloc(read->made, 0);
    if (made == NULL) return NULL;
    for (Py_ssize_t at = 0; at < read->count; at++) {
        const Field *field = &read->fields[at];
        PyObject *value = field->tag < 0 ? read_value(reader, field) : Py_NewRef(field->default_value);
        if (set_field_of(made, field, value) < 0) {
            Py_DECREF(made);
            return NULL;
        }
    }
    if (reader->flexible && read_tags(reader, read, made) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

/* decode(buffer, offset) */
PyObject *program_decode(Program *program, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || program->strict) {
        PyErr_SetString(PyExc_TypeError, "decode takes a buffer and an offset, and is for messages");
        return NULL;
    }
    Py_ssize_t offset = PyNumber_AsSsize_t(args[1], PyExc_OverflowError);
    if (offset == -1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *message = NULL;
    if (offset < 0 || offset > view.len) {
        cut();
    } else {
        Reader reader = {view.buf, offset, view.len, args[0], names.elements_at_once, 0, program->flexible};
        message = read_struct(&reader, program->root);
    }
    PyBuffer_Release(&view);
    return message;
}

/* -- The header of a request: protocol/frame.py --------------------------------------------------------------------- */

#define NO_API (-1)
#define NEVER_FLEXIBLE INT32_MAX
#define APIS 256
#define API_VERSIONS 18

static int32_t first_flexible_version[APIS];

int frame_set_up(PyObject *first_flexible)
{
    for (int key = 0; key < APIS; key++) first_flexible_version[key] = NO_API;
    PyObject *key, *first;
    Py_ssize_t position = 0;
    while (PyDict_Next(first_flexible, &position, &key, &first)) {
        int64_t api, version = NEVER_FLEXIBLE;
        if (whole(key, 0, APIS - 1, &api) < 0) return -1;
        if (first != Py_None && whole(first, 0, INT16_MAX, &version) < 0) return -1;
        first_flexible_version[api] = (int32_t)version;
    }
    return 0;
}

static PyObject *make_header(const uint8_t *data, PyObject *client_id, Py_ssize_t body)
{
    if (client_id == NULL) return NULL;
    PyTypeObject *type = names.request_header;
    PyObject *header = type->tp_alloc(type, 5);
    PyObject *parts[] = {
        PyLong_FromLong((int16_t)get16(data)), PyLong_FromLong((int16_t)get16(data + 2)),
        PyLong_FromLong((int32_t)get32(data + 4)), client_id, PyLong_FromSsize_t(body),
    };
    for (int at = 0; at < 5; at++) {
        if (header == NULL || parts[at] == NULL) {
            Py_XDECREF(parts[at]);
            Py_CLEAR(header);
        } else {
            PyTuple_SET_ITEM(header, at, parts[at]);
        }
    }
#if PY_VERSION_HEX >= 0x030E0000
    if (header != NULL) ((PyTupleObject *)header)->ob_hash = -1; /* not computed yet */
#endif
    return header;
}

static PyObject *header_in(const uint8_t *data, Py_ssize_t size)
{
    if (size < 10 || ((int16_t)get16(data + 8) > 0 && 10 + (int16_t)get16(data + 8) > size)) {
        PyErr_SetString(names.malformed_request, "the frame ends inside its header");
        return NULL;
    }
    int key = (int16_t)get16(data), length = (int16_t)get16(data + 8);
    int32_t first = key >= 0 && key < APIS ? first_flexible_version[key] : NO_API;
    if (first == NO_API) {
        PyErr_Format(names.malformed_request, "no API has the key %d", key);
        return NULL;
    }
    Reader reader = {.data = data, .at = length > 0 ? 10 + length : 10, .end = size, .flexible = true};
    if ((int16_t)get16(data + 2) >= first && read_tags(&reader, NULL, NULL) < 0) return NULL;
    PyObject *client_id =
        length < 0 ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8((const char *)data + 10, length, "replace");
    return make_header(data, client_id, reader.at);
}

/* response_header(api_key, api_version, correlation_id) */
PyObject *core_response_header(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t key, version, correlation_id;
    if (count != 3 || keywords != NULL || names.request_header == NULL || whole(args[0], 0, APIS - 1, &key) < 0 ||
        whole(args[1], INT16_MIN, INT16_MAX, &version) < 0 || whole(args[2], INT32_MIN, INT32_MAX, &correlation_id) < 0 ||
        first_flexible_version[key] == NO_API)
        return leave_to_twin("response_header", args, count, keywords);
    uint8_t header[5];
    put32(header, (uint32_t)correlation_id);
    header[4] = 0; /* an empty tag section */
    bool is_flexible = key != API_VERSIONS && version >= first_flexible_version[key];
    return PyBytes_FromStringAndSize((const char *)header, is_flexible ? 5 : 4);
}

PyObject *core_parse_request_header(PyObject *module, PyObject *frame)
{
    Py_buffer view;
    if (names.request_header == NULL || names.malformed_request == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "set_up_frames has not been called");
        return NULL;
    }
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *header = header_in(view.buf, view.len);
    PyBuffer_Release(&view);
    return header;
}
