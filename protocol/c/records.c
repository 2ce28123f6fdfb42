/* Encodes records and batches of the broker itself: the twins of encode_record, build_batch and end_txn_marker. */

#include "core.h"

#define HEADER_BYTES 61
#define LOG_OVERHEAD_BYTES 12
#define CRC_START 21
#define MAGIC 2
#define LOG_APPEND_TIME 0x08
#define TRANSACTIONAL 0x10
#define CONTROL 0x20
/* If this processor has no CRC instruction, the library computes the CRC of longer bodies. */
#define TABLE_BYTES_MAX 65536

static Py_ssize_t varint_size(uint64_t value)
{
    Py_ssize_t size = 1;
    for (; value > 0x7F; value >>= 7) size++;
    return size;
}

static int give_up(void)
{
    PyErr_SetString(PyExc_ValueError, "this is left to the twin");
    return -1;
}

/* The length of a key or a value; -1 for null. */
static int length_of(PyObject *value, Py_ssize_t *length)
{
    if (value != Py_None && !PyBytes_CheckExact(value)) return give_up();
    *length = value == Py_None ? -1 : PyBytes_GET_SIZE(value);
    return 0;
}

static Py_ssize_t field_size(Py_ssize_t length) { return varint_size(zigzag(length)) + (length > 0 ? length : 0); }

static uint8_t *put_field(uint8_t *at, PyObject *value, Py_ssize_t length)
{
    at += varint_put(at, zigzag(length));
    if (length > 0) memcpy(at, PyBytes_AS_STRING(value), (size_t)length);
    return at + (length > 0 ? length : 0);
}

static bool has_headers(PyObject *headers)
{
    return headers != NULL && !(PyTuple_CheckExact(headers) && PyTuple_GET_SIZE(headers) == 0);
}

/* Encodes the headers `((name, value), ...)`, preceded by their number. */
static int write_headers(Buffer *out, PyObject *headers)
{
    if (!PyTuple_CheckExact(headers) && !PyList_CheckExact(headers)) return give_up();
    Py_ssize_t count = PySequence_Fast_GET_SIZE(headers);
    if (buffer_varint(out, zigzag(count)) < 0) return -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *header = PySequence_Fast_GET_ITEM(headers, at);
        if (!PyTuple_Check(header) || PyTuple_GET_SIZE(header) != 2) return give_up();
        PyObject *name = PyTuple_GET_ITEM(header, 0), *value = PyTuple_GET_ITEM(header, 1);
        Py_ssize_t name_length, value_length;
        /* A name with surrogates comes from bytes that are not UTF-8: the twin restores them. */
        const char *text = PyUnicode_CheckExact(name) ? PyUnicode_AsUTF8AndSize(name, &name_length) : NULL;
        if (text == NULL || length_of(value, &value_length) < 0) return give_up();
        if (buffer_varint(out, zigzag(name_length)) < 0 || buffer_put(out, text, name_length) < 0) return -1;
        uint8_t *place = buffer_extend(out, field_size(value_length));
        if (place == NULL) return -1;
        put_field(place, value, value_length);
    }
    return 0;
}

static int write_record(Buffer *out, int64_t offset, int64_t timestamp, PyObject *key, PyObject *value, PyObject *headers)
{
    Py_ssize_t key_length, value_length;
    if (length_of(key, &key_length) < 0 || length_of(value, &value_length) < 0) return -1;
    Buffer written;
    buffer_begin(&written);
    if (has_headers(headers) ? write_headers(&written, headers) < 0 : buffer_put(&written, "", 1) < 0) {
        buffer_end(&written);
        return -1;
    }
    Py_ssize_t size = 1 + varint_size(zigzag(timestamp)) + varint_size(zigzag(offset)) + field_size(key_length) +
                      field_size(value_length) + written.size;
    uint8_t *at = buffer_extend(out, varint_size(zigzag(size)) + size);
    if (at != NULL) {
        at += varint_put(at, zigzag(size));
        *at++ = 0; /* the attributes of a record are unused */
        at += varint_put(at, zigzag(timestamp));
        at += varint_put(at, zigzag(offset));
        at = put_field(at, key, key_length);
        at = put_field(at, value, value_length);
        memcpy(at, written.data, (size_t)written.size);
    }
    buffer_end(&written);
    return at == NULL ? -1 : 0;
}

/* encode_record(offset_delta, timestamp_delta, key, value, headers=()) */
PyObject *core_encode_record(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t offset, timestamp;
    if (count < 4 || count > 5 || keywords != NULL ||
        whole(args[0], INT64_MIN, INT64_MAX, &offset) < 0 || whole(args[1], INT64_MIN, INT64_MAX, &timestamp) < 0)
        return leave_to_twin("encode_record", args, count, keywords);
    Buffer out;
    buffer_begin(&out);
    int failed = write_record(&out, offset, timestamp, args[2], args[3], count == 5 ? args[4] : NULL);
    PyObject *record = failed ? NULL : PyBytes_FromStringAndSize((const char *)out.data, out.size);
    buffer_end(&out);
    return failed ? leave_to_twin("encode_record", args, count, keywords) : record;
}

/* -- Batches --------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t base_offset, leader_epoch, attributes, last_offset_delta, base_timestamp, max_timestamp;
    int64_t producer_id, producer_epoch, base_sequence, record_count;
} Head;

/* Writes the header into the space that `out` has in front of the records. */
static void put_head(Buffer *out, const Head *head)
{
    uint8_t *at = out->data;
    put64(at, (uint64_t)head->base_offset);
    put32(at + 8, (uint32_t)(out->size - LOG_OVERHEAD_BYTES));
    put32(at + 12, (uint32_t)head->leader_epoch);
    at[16] = MAGIC;
    put16(at + 21, (uint16_t)head->attributes);
    put32(at + 23, (uint32_t)head->last_offset_delta);
    put64(at + 27, (uint64_t)head->base_timestamp);
    put64(at + 35, (uint64_t)head->max_timestamp);
    put64(at + 43, (uint64_t)head->producer_id);
    put16(at + 51, (uint16_t)head->producer_epoch);
    put32(at + 53, (uint32_t)head->base_sequence);
    put32(at + 57, (uint32_t)head->record_count);
    put32(at + 17, crc32c_of(0, at + CRC_START, out->size - CRC_START));
}

/* The bounds of a parameter; if `most` is below `least`, it is a boolean. */
typedef struct {
    const char *name;
    int64_t least, most, preset;
} Parameter;

#define PARAMETERS_MAX 10

typedef struct {
    const Parameter *parameters;
    int count;
    PyObject *interned[PARAMETERS_MAX];
} Signature;

static int find_parameter(Signature *of, PyObject *name)
{
    for (int at = 0; at < of->count; at++)
        if (of->interned[at] == name) return at;
    for (int at = 0; at < of->count; at++) {
        if (!PyUnicode_CompareWithASCIIString(name, of->parameters[at].name)) {
            /* Names of parameters in code are interned: the next call finds it by identity. */
            if (of->interned[at] == NULL) of->interned[at] = Py_NewRef(name);
            return at;
        }
    }
    return -1;
}

/* The values of keyword arguments. -1 if one is unknown or out of bounds: then the twin raises the error. */
static int read_keywords(Signature *of, PyObject *const *values, PyObject *keywords, int64_t *out, PyObject **objects)
{
    for (int at = 0; at < of->count; at++) out[at] = of->parameters[at].preset;
    for (Py_ssize_t given = 0; keywords != NULL && given < PyTuple_GET_SIZE(keywords); given++) {
        int at = find_parameter(of, PyTuple_GET_ITEM(keywords, given));
        if (at < 0) return -1;
        const Parameter *parameter = &of->parameters[at];
        objects[at] = values[given];
        if (parameter->most < parameter->least) {
            int truth = PyObject_IsTrue(values[given]);
            if (truth < 0) return -1;
            out[at] = truth;
        } else if (values[given] != Py_None && whole(values[given], parameter->least, parameter->most, &out[at]) < 0) {
            return -1;
        }
    }
    return 0;
}

enum { BASE_OFFSET, LEADER_EPOCH, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, IS_TRANSACTIONAL, IS_CONTROL, COMPRESSION,
       COMPRESSION_LEVEL, APPEND_TIME };
static const Parameter OF_BATCH[] = {
    [BASE_OFFSET] = {"base_offset", INT64_MIN, INT64_MAX, 0},
    [LEADER_EPOCH] = {"leader_epoch", INT32_MIN, INT32_MAX, -1},
    [PRODUCER_ID] = {"producer_id", INT64_MIN, INT64_MAX, -1},
    [PRODUCER_EPOCH] = {"producer_epoch", INT16_MIN, INT16_MAX, -1},
    [BASE_SEQUENCE] = {"base_sequence", INT32_MIN, INT32_MAX, -1},
    [IS_TRANSACTIONAL] = {"transactional", 1, 0, 0},
    [IS_CONTROL] = {"control", 1, 0, 0},
    [COMPRESSION] = {"compression", 0, 0, 0}, /* the twin handles all other codecs */
    [COMPRESSION_LEVEL] = {"compression_level", INT32_MIN, INT32_MAX, 0},
    [APPEND_TIME] = {"log_append_time_ms", INT64_MIN, INT64_MAX, 0},
};
static Signature of_batch = {OF_BATCH, 10, {NULL}};

/* Encodes the records, after space for the header, and their timestamps. */
static int write_records(Buffer *out, PyObject *records, Head *head)
{
    if (buffer_extend(out, HEADER_BYTES) == NULL) return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(records);
    head->base_timestamp = head->max_timestamp = -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *record = PySequence_Fast_GET_ITEM(records, at);
        int64_t timestamp, delta;
        if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) < 3 || PyTuple_GET_SIZE(record) > 4) return give_up();
        if (whole(PyTuple_GET_ITEM(record, 0), INT64_MIN, INT64_MAX, &timestamp) < 0) return -1;
        if (at == 0) head->base_timestamp = head->max_timestamp = timestamp;
        if (timestamp > head->max_timestamp) head->max_timestamp = timestamp;
        if (__builtin_sub_overflow(timestamp, head->base_timestamp, &delta)) return give_up();
        PyObject *headers = PyTuple_GET_SIZE(record) == 4 ? PyTuple_GET_ITEM(record, 3) : NULL;
        if (write_record(out, at, delta, PyTuple_GET_ITEM(record, 1), PyTuple_GET_ITEM(record, 2), headers) < 0)
            return -1;
    }
    head->record_count = count;
    head->last_offset_delta = count ? count - 1 : 0;
    return out->size <= INT32_MAX && (crc32c_in_hardware() || out->size <= TABLE_BYTES_MAX) ? 0 : give_up();
}

/* build_batch(records, *, ...) */
PyObject *core_build_batch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t given[PARAMETERS_MAX];
    PyObject *objects[PARAMETERS_MAX] = {NULL};
    if (count != 1 || !(PyList_CheckExact(args[0]) || PyTuple_CheckExact(args[0])) ||
        read_keywords(&of_batch, args + count, keywords, given, objects) < 0)
        return leave_to_twin("build_batch", args, count, keywords);
    for (int at = 0; at < COMPRESSION; at++)
        if (objects[at] == Py_None) return leave_to_twin("build_batch", args, count, keywords);
    Head head = {
        .base_offset = given[BASE_OFFSET],
        .leader_epoch = given[LEADER_EPOCH],
        .producer_id = given[PRODUCER_ID],
        .producer_epoch = given[PRODUCER_EPOCH],
        .base_sequence = given[BASE_SEQUENCE],
        .attributes = (given[IS_TRANSACTIONAL] ? TRANSACTIONAL : 0) | (given[IS_CONTROL] ? CONTROL : 0),
    };
    Buffer out;
    buffer_begin(&out);
    PyObject *batch = NULL;
    int failed = write_records(&out, args[0], &head);
    if (!failed) {
        if (objects[APPEND_TIME] != NULL && objects[APPEND_TIME] != Py_None) {
            head.attributes |= LOG_APPEND_TIME;
            head.max_timestamp = given[APPEND_TIME];
        }
        put_head(&out, &head);
        batch = PyBytes_FromStringAndSize((const char *)out.data, out.size);
    }
    buffer_end(&out);
    return failed ? leave_to_twin("build_batch", args, count, keywords) : batch;
}

enum { MARKER_COMMITTED, MARKER_COORDINATOR, MARKER_TIME, MARKER_OFFSET, MARKER_LEADER, MARKER_PARAMETERS };
static const Parameter OF_MARKER[] = {
    [MARKER_COMMITTED] = {"committed", 1, 0, 0},
    [MARKER_COORDINATOR] = {"coordinator_epoch", INT32_MIN, INT32_MAX, 0},
    [MARKER_TIME] = {"timestamp_ms", INT64_MIN, INT64_MAX, 0},
    [MARKER_OFFSET] = {"base_offset", INT64_MIN, INT64_MAX, 0},
    [MARKER_LEADER] = {"leader_epoch", INT32_MIN, INT32_MAX, -1},
};
static Signature of_marker = {OF_MARKER, MARKER_PARAMETERS, {NULL}};

/* end_txn_marker(producer_id, producer_epoch, *, ...): KIP-98 */
PyObject *core_end_txn_marker(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const uint8_t RECORD[17] = {0x20, 0, 0, 0, 8, 0, 0, 0, 0, 0x0C, 0, 0, 0, 0, 0, 0, 0};
    int64_t given[PARAMETERS_MAX], producer_id, producer_epoch;
    PyObject *objects[PARAMETERS_MAX] = {NULL};
    bool is_plain = count == 2 && whole(args[0], INT64_MIN, INT64_MAX, &producer_id) == 0 &&
                    whole(args[1], INT16_MIN, INT16_MAX, &producer_epoch) == 0 &&
                    read_keywords(&of_marker, args + count, keywords, given, objects) == 0;
    for (int at = 0; is_plain && at < MARKER_PARAMETERS; at++)
        is_plain = objects[at] != Py_None && (objects[at] != NULL || at >= MARKER_OFFSET);
    if (!is_plain) return leave_to_twin("end_txn_marker", args, count, keywords);
    Head head = {
        .base_offset = given[MARKER_OFFSET],
        .leader_epoch = given[MARKER_LEADER],
        .attributes = TRANSACTIONAL | CONTROL,
        .base_timestamp = given[MARKER_TIME],
        .max_timestamp = given[MARKER_TIME],
        .producer_id = producer_id,
        .producer_epoch = producer_epoch,
        .base_sequence = -1,
        .record_count = 1,
    };
    Buffer out;
    buffer_begin(&out);
    out.size = HEADER_BYTES + sizeof RECORD; /* always fits into the initial buffer */
    memcpy(out.data + HEADER_BYTES, RECORD, sizeof RECORD);
    out.data[HEADER_BYTES + 8] = given[MARKER_COMMITTED] != 0;
    put32(out.data + HEADER_BYTES + 12, (uint32_t)given[MARKER_COORDINATOR]);
    put_head(&out, &head);
    return PyBytes_FromStringAndSize((const char *)out.data, out.size);
}
