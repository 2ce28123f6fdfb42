/* Shared by the files of the compiled core. Each function has a twin in Python, which is the specification: the
 * twin's name is beside it, and tests compare both with the same bytes.
 *
 * No length is trusted: a position is compared with the end before a byte is read or an object is allocated. */

#ifndef ODRADEK_CORE_H
#define ODRADEK_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Varints of ten bytes have 70 bits, which Python's integers can represent. So this type must, too. */
typedef __int128 int128;

/* The classes and limits of the Python modules, from set_up, so that they are defined only once. */
extern struct Names {
    PyObject *malformed_request;
    PyObject *long_message;
    PyObject *uuid_of_bytes;
    PyObject *bytes_attribute; /* the string "bytes" */
    PyTypeObject *request_header;
    PyObject *twins; /* the Python twin of each function, by the function's name */
    Py_ssize_t string_bytes_max;
    Py_ssize_t elements_at_once;
    Py_ssize_t inline_bytes_max;
    Py_ssize_t tags_max;
} names;

/* -- Bytes ------------------------------------------------------------------------------------------------------ */

static inline uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t get32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}
static inline uint64_t get64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}
static inline void put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}
static inline void put32(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}
static inline void put64(uint8_t *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

/* -- Growing buffers ---------------------------------------------------------------------------------------------- */

#define INLINE_BYTES 1024

typedef struct {
    uint8_t *data; /* points to `first` until that is full */
    Py_ssize_t size, room;
    uint8_t first[INLINE_BYTES];
} Buffer;

static inline void buffer_begin(Buffer *buffer)
{
    buffer->data = buffer->first;
    buffer->size = 0;
    buffer->room = INLINE_BYTES;
}
static inline void buffer_end(Buffer *buffer)
{
    if (buffer->data != buffer->first) PyMem_Free(buffer->data);
}
int buffer_grow(Buffer *buffer, Py_ssize_t more);

/* Position for the next `more` bytes; NULL with MemoryError. */
static inline uint8_t *buffer_extend(Buffer *buffer, Py_ssize_t more)
{
    if (buffer->room - buffer->size < more && buffer_grow(buffer, more) < 0) return NULL;
    uint8_t *at = buffer->data + buffer->size;
    buffer->size += more;
    return at;
}
static inline int buffer_put(Buffer *buffer, const void *data, Py_ssize_t size)
{
    uint8_t *at = buffer_extend(buffer, size);
    if (at == NULL) return -1;
    if (size) memcpy(at, data, (size_t)size);
    return 0;
}

#define VARINT_BYTES_MAX 5
#define VARLONG_BYTES_MAX 10

/* Writes an unsigned varint; returns the number of bytes. `at` must have space for ten. */
static inline Py_ssize_t varint_put(uint8_t *at, uint64_t value)
{
    Py_ssize_t size = 0;
    while (value > 0x7F) {
        at[size++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    at[size++] = (uint8_t)value;
    return size;
}
static inline int buffer_varint(Buffer *buffer, uint64_t value)
{
    uint8_t bytes[VARLONG_BYTES_MAX];
    return buffer_put(buffer, bytes, varint_put(bytes, value));
}
static inline uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

/* -- Programs (program.c): the field table of one version of a message or a record --------------------------------- */

typedef enum {
    KIND_BOOL,
    KIND_INT8,
    KIND_INT16,
    KIND_INT32,
    KIND_INT64,
    KIND_UINT8,
    KIND_UINT16,
    KIND_UINT32,
    KIND_UINT64,
    KIND_FLOAT64,
    KIND_UUID,
    KIND_STRING,
    KIND_BYTES,
    KIND_RECORDS,
    KIND_STRUCT,
    /* Only in records: preceded by a byte that is 0 for null. */
    KIND_TAGGED_STRUCT,
    KINDS
} Kind;

extern const uint8_t SIZE_OF_KIND[KINDS];

typedef struct Struct Struct;

typedef struct {
    PyObject *name;
    PyObject *default_value;
    Struct *nested;
    Py_ssize_t offset; /* offset of the slot in an instance; -1 if the attribute is not a slot */
    Kind kind;
    bool is_array, nullable;
    int64_t tag; /* -1 for none */
} Field;

struct Struct {
    PyTypeObject *made;     /* the class of decoded instances */
    PyTypeObject *declared; /* the class whose slots the offsets belong to */
    Py_ssize_t count, tagged_count;
    Field *fields;
    Field **tagged; /* tagged fields by number */
};

typedef struct {
    PyObject_HEAD
    Struct *root;
    bool flexible;
    bool strict; /* rules of protocol/schema.py: a record, not a message */
    PyObject *fallback; /* Python's encoder for other values; it writes them or raises */
} Program;

extern PyTypeObject *program_type;
int program_ready(PyObject *module);

/* The value of a field of any object; a new reference. */
static inline PyObject *field_of(PyObject *owner, const Struct *of, const Field *field)
{
    PyTypeObject *type = Py_TYPE(owner);
    if (field->offset >= 0 && (type == of->declared || type == of->made)) {
        PyObject *value = *(PyObject **)((char *)owner + field->offset);
        if (value != NULL) return Py_NewRef(value);
    }
    return PyObject_GetAttr(owner, field->name);
}

/* Consumes the value. */
static inline int set_field_of(PyObject *owner, const Field *field, PyObject *value)
{
    if (value == NULL) return -1;
    if (field->offset >= 0) {
        PyObject **slot = (PyObject **)((char *)owner + field->offset), *before = *slot;
        *slot = value;
        Py_XDECREF(before);
        return 0;
    }
    int failed = PyObject_SetAttr(owner, field->name, value);
    Py_DECREF(value);
    return failed;
}

/* The slot of this name in instances of `type`: its offset, or -1 if the attribute is anything else. */
Py_ssize_t slot_offset(PyTypeObject *type, PyObject *name);
/* The offsets of several slots; -1 and a TypeError if one of the attributes is not a slot. */
int slots_of(PyObject *type, const char *const *names, int count, Py_ssize_t *at);

PyObject *program_decode(Program *program, PyObject *const *args, Py_ssize_t count);
PyObject *program_encode(Program *program, PyObject *message);
PyObject *program_encode_record(Program *program, PyObject *const *args, Py_ssize_t count);

/* -- Numbers (numbers.c) --------------------------------------------------------------------------------------------- */

/* An integer between two bounds; -1 and an exception if it is not an integer, or out of bounds. */
int whole(PyObject *value, int64_t least, int64_t most, int64_t *out);
int whole128(PyObject *value, int128 *out);
PyObject *number_of_128(int128 value);
int write_number(uint8_t *at, Kind kind, PyObject *value);
PyObject *read_number(const uint8_t *at, Kind kind);
int write_uuid(uint8_t *at, PyObject *value);

/* -- Functions of the module ----------------------------------------------------------------------------------------- */

uint32_t crc32c_of(uint32_t crc, const uint8_t *data, Py_ssize_t size);
void crc32c_begin(void);
bool crc32c_in_hardware(void);

int frame_set_up(PyObject *first_flexible);
int batch_set_up(PyObject *class, PyObject *corrupt, Py_ssize_t piece_bytes);
int walk_set_up(PyObject *corrupt, PyObject *records, PyObject *length, PyObject *count, PyObject *walked, long long slice);
int add_method(PyObject *module, PyMethodDef *definition);
int batch_ready(PyObject *module);

/* tuples.c */
PyObject *set_fields(PyObject *module, PyObject *args);
/* hash.c */
PyObject *core_partition_for(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
/* construct.c */
PyObject *set_constructor(PyObject *module, PyObject *args);
int walk_ready(void);

PyObject *core_parse_request_header(PyObject *module, PyObject *frame);
PyObject *core_crc32c(PyObject *module, PyObject *args);
PyObject *core_walk(PyObject *module, PyObject *args, PyObject *keywords);

/* For unusual cases these call the twin, which also raises the errors. */
PyObject *core_response_header(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_parse_batch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_patched_header(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_encode_record(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_build_batch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_end_txn_marker(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *leave_to_twin(const char *name, PyObject *const *args, Py_ssize_t count, PyObject *keywords);

PyObject *core_keep_freed_memory(PyObject *module, PyObject *args);

#endif
