/* The headers of record batches: the twins of functions of protocol/batch.py. */

#include "core.h"

#define HEADER_BYTES 61
#define LOG_OVERHEAD_BYTES 12
#define CRC_START 21
#define MAGIC 2
/* If this processor has no CRC instruction, the library computes the CRC of longer bodies. */
#define TABLE_BYTES_MAX 1024

/* The slots of RecordBatch, in the order in which they are filled. */
enum { BUFFER, START, SIZE, CRC, OFFSET, EPOCH, MAGIC_SLOT, ATTRIBUTES, DELTA, BASE, MAX, PRODUCER, PRODUCER_EPOCH,
       SEQUENCE, COUNT, SLOTS };
static const char *const SLOT_NAMES[SLOTS] = {
    "buffer", "start", "size", "crc", "base_offset", "partition_leader_epoch", "magic", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count",
};
static Py_ssize_t slot_at[SLOTS];
static PyTypeObject *batch_class;
static PyObject *corrupt_header;
static Py_ssize_t one_piece_bytes;

int batch_set_up(PyObject *class, PyObject *corrupt, Py_ssize_t piece_bytes)
{
    one_piece_bytes = piece_bytes;
    if (slots_of(class, SLOT_NAMES, SLOTS, slot_at) < 0) return -1;
    Py_XSETREF(batch_class, (PyTypeObject *)Py_NewRef(class));
    Py_XSETREF(corrupt_header, Py_NewRef(corrupt));
    return 0;
}

static inline PyObject **slot_of(PyObject *batch, int slot) { return (PyObject **)((char *)batch + slot_at[slot]); }

static PyObject *raise_corrupt_header(PyObject *buffer, Py_ssize_t start)
{
    PyObject *error = PyObject_CallFunction(corrupt_header, "On", buffer, start);
    if (error != NULL) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

static PyObject *fill(PyTypeObject *class, PyObject *buffer, Py_ssize_t start, const uint8_t *at)
{
    PyObject *batch = class->tp_alloc(class, 0);
    if (batch == NULL) return NULL;
    *slot_of(batch, BUFFER) = Py_NewRef(buffer);
    PyObject *numbers[SLOTS] = {
        [START] = PyLong_FromSsize_t(start),
        [SIZE] = PyLong_FromLongLong((int64_t)(int32_t)get32(at + 8) + LOG_OVERHEAD_BYTES),
        [CRC] = PyLong_FromUnsignedLong(get32(at + 17)),
        [OFFSET] = PyLong_FromLongLong((int64_t)get64(at)),
        [EPOCH] = PyLong_FromLong((int32_t)get32(at + 12)),
        [MAGIC_SLOT] = PyLong_FromLong((int8_t)at[16]),
        [ATTRIBUTES] = PyLong_FromLong((int16_t)get16(at + 21)),
        [DELTA] = PyLong_FromLong((int32_t)get32(at + 23)),
        [BASE] = PyLong_FromLongLong((int64_t)get64(at + 27)),
        [MAX] = PyLong_FromLongLong((int64_t)get64(at + 35)),
        [PRODUCER] = PyLong_FromLongLong((int64_t)get64(at + 43)),
        [PRODUCER_EPOCH] = PyLong_FromLong((int16_t)get16(at + 51)),
        [SEQUENCE] = PyLong_FromLong((int32_t)get32(at + 53)),
        [COUNT] = PyLong_FromLong((int32_t)get32(at + 57)),
    };
    bool is_whole = true;
    for (int slot = START; slot < SLOTS; slot++) {
        *slot_of(batch, slot) = numbers[slot];
        is_whole = is_whole && numbers[slot] != NULL;
    }
    if (!is_whole) Py_CLEAR(batch);
    return batch;
}

/* RecordBatch.parse(buffer, start=0); the class is the first argument. */
PyObject *core_parse_batch(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    if (keywords != NULL) return leave_to_twin("parse_batch", args, count, keywords);
    if (batch_class == NULL || count < 2 || count > 3 || !PyType_Check(args[0]) ||
        !PyType_IsSubtype((PyTypeObject *)args[0], batch_class)) {
        PyErr_SetString(PyExc_TypeError, "parse_batch takes a class of batches, a buffer and a start");
        return NULL;
    }
    Py_ssize_t start = count == 3 ? PyNumber_AsSsize_t(args[2], PyExc_OverflowError) : 0;
    if (start == -1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) return NULL;
    bool is_sound = start >= 0 && start <= view.len && view.len - start >= HEADER_BYTES;
    const uint8_t *at = (const uint8_t *)view.buf + start;
    if (is_sound) {
        int64_t size = (int64_t)(int32_t)get32(at + 8) + LOG_OVERHEAD_BYTES;
        is_sound = at[16] == MAGIC && size >= HEADER_BYTES && size <= view.len - start;
    }
    PyObject *batch = is_sound ? fill((PyTypeObject *)args[0], args[1], start, at) : NULL;
    PyBuffer_Release(&view);
    return is_sound ? batch : raise_corrupt_header(args[1], start);
}

/* RecordBatch.stored_at(base_offset, leader_epoch); the batch is the first argument. */
static PyObject *stored_at(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t start, size, offset, epoch;
    if (batch_class == NULL || count != 3 || keywords != NULL || !PyObject_TypeCheck(args[0], batch_class))
        return leave_to_twin("stored_at", args, count, keywords);
    PyObject *buffer = *slot_of(args[0], BUFFER), *from = *slot_of(args[0], START), *bytes = *slot_of(args[0], SIZE);
    if (buffer == NULL || from == NULL || bytes == NULL || whole(from, 0, PY_SSIZE_T_MAX / 4, &start) < 0 ||
        whole(bytes, HEADER_BYTES, one_piece_bytes, &size) < 0 || whole(args[1], INT64_MIN, INT64_MAX, &offset) < 0 ||
        whole(args[2], INT32_MIN, INT32_MAX, &epoch) < 0)
        return leave_to_twin("stored_at", args, count, keywords);
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *piece = NULL, *pieces = NULL;
    bool is_whole = start + size <= view.len;
    if (is_whole) piece = PyBytes_FromStringAndSize((const char *)view.buf + start, (Py_ssize_t)size);
    PyBuffer_Release(&view);
    if (!is_whole) return leave_to_twin("stored_at", args, count, keywords);
    if (piece == NULL) return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(piece);
    put64(at, (uint64_t)offset);
    put32(at + 8, (uint32_t)(size - LOG_OVERHEAD_BYTES));
    put32(at + 12, (uint32_t)epoch);
    pieces = PyTuple_Pack(1, piece);
    Py_DECREF(piece);
    return pieces;
}

/* RecordBatch.has_valid_crc */
static PyObject *has_valid_crc(PyObject *module, PyObject *batch)
{
    if (batch_class == NULL || !PyObject_TypeCheck(batch, batch_class)) {
        PyErr_SetString(PyExc_TypeError, "has_valid_crc takes a RecordBatch");
        return NULL;
    }
    PyObject *parts[SLOTS] = {NULL};
    for (int slot = BUFFER; slot <= CRC; slot++) {
        parts[slot] = *slot_of(batch, slot);
        if (parts[slot] == NULL) return leave_to_twin("has_valid_crc", &batch, 1, NULL);
    }
    int64_t start, size, crc;
    if (whole(parts[START], 0, PY_SSIZE_T_MAX / 4, &start) < 0 || whole(parts[SIZE], 0, PY_SSIZE_T_MAX / 4, &size) < 0 ||
        whole(parts[CRC], 0, UINT32_MAX, &crc) < 0)
        return leave_to_twin("has_valid_crc", &batch, 1, NULL);
    if (size > TABLE_BYTES_MAX && !crc32c_in_hardware()) return leave_to_twin("has_valid_crc", &batch, 1, NULL);
    PyObject *buffer = Py_NewRef(parts[BUFFER]);
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(buffer);
        return NULL;
    }
    /* Like a slice: not beyond the end of the buffer. */
    int64_t end = start + size > view.len ? view.len : start + size, from = start + CRC_START;
    uint32_t found = from < end ? crc32c_of(0, (const uint8_t *)view.buf + from, (Py_ssize_t)(end - from)) : 0;
    PyBuffer_Release(&view);
    Py_DECREF(buffer);
    return PyBool_FromLong(found == (uint32_t)crc);
}

/* patched_header(batch, base_offset, leader_epoch, start=0) */
PyObject *core_patched_header(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t offset, epoch, start = 0;
    if (count < 3 || count > 4 || keywords != NULL || !PyBytes_CheckExact(args[0]) ||
        whole(args[1], INT64_MIN, INT64_MAX, &offset) < 0 || whole(args[2], INT32_MIN, INT32_MAX, &epoch) < 0 ||
        (count == 4 && whole(args[3], 0, PY_SSIZE_T_MAX / 4, &start) < 0) ||
        start + LOG_OVERHEAD_BYTES > PyBytes_GET_SIZE(args[0]))
        return leave_to_twin("patched_header", args, count, keywords);
    uint8_t bytes[16];
    put64(bytes, (uint64_t)offset);
    memcpy(bytes + 8, PyBytes_AS_STRING(args[0]) + start + 8, 4);
    put32(bytes + 12, (uint32_t)epoch);
    return PyBytes_FromStringAndSize((const char *)bytes, 16);
}

static PyMethodDef methods[] = {
    {"has_valid_crc", has_valid_crc, METH_O, "Whether the CRC matches the batch."},
    {"stored_at", (PyCFunction)(void (*)(void))stored_at, METH_FASTCALL | METH_KEYWORDS, "The batch as a log stores it."},
    {NULL, NULL, 0, NULL},
};

int batch_ready(PyObject *module)
{
    for (PyMethodDef *each = methods; each->ml_name != NULL; each++)
        if (add_method(module, each) < 0) return -1;
    return 0;
}
