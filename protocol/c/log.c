/* The plain way of a small batch into a log: the twin of `Log._append_plain` of storage/log.py. */

#include "core.h"
#include <unistd.h>

/* What a page of the disk's cache takes at once: the interpreter is kept meanwhile, and no thread handed it. */
#define PLAIN_BYTES_MAX 16384
#define PATCHED_BYTES 16

enum { ROOM_SEGMENT, ROOM_CONFIG, ROOM_BYTES, ROOM_TIMESTAMP, ROOM_LAST_OFFSET, ROOM_EPOCH, ROOM_FIELDS };
enum { SEGMENT_LOG, SEGMENT_IS_FULL, SEGMENT_SINCE, SEGMENT_TIMESTAMP, SEGMENT_OFFSET, SEGMENT_SLOTS };
static const char *const SEGMENT_NAMES[SEGMENT_SLOTS] = {
    "_log", "_index_tail_is_full", "_bytes_since_index_entry", "_max_timestamp_ms", "_max_timestamp_offset",
};
enum { FILE_FD, FILE_SIZE, FILE_USED, FILE_SLOTS };
static const char *const FILE_NAMES[FILE_SLOTS] = {"_fd", "size", "used"};

static PyTypeObject *segment_class, *file_class, *place_class, *system_class;
static Py_ssize_t segment_at[SEGMENT_SLOTS], file_at[FILE_SLOTS];
static PyObject *files; /* the module in which tests put another system than a plain `System` */
static PyObject *of_closed, *of_room, *of_config, *of_segments, *of_end, *of_tail, *of_interval, *of_system, *of_append;

int log_set_up(PyObject *segment, PyObject *file, PyObject *place, PyObject *module)
{
    if (slots_of(segment, SEGMENT_NAMES, SEGMENT_SLOTS, segment_at) < 0 || slots_of(file, FILE_NAMES, FILE_SLOTS, file_at) < 0)
        return -1;
    PyObject *system = PyObject_GetAttrString(module, "System");
    if (system == NULL) return -1;
    Py_XSETREF(system_class, (PyTypeObject *)system);
    Py_XSETREF(files, Py_NewRef(module));
    Py_XSETREF(segment_class, (PyTypeObject *)Py_NewRef(segment));
    Py_XSETREF(file_class, (PyTypeObject *)Py_NewRef(file));
    Py_XSETREF(place_class, (PyTypeObject *)Py_NewRef(place));
    return 0;
}

static inline PyObject **slot(PyObject *owner, Py_ssize_t at) { return (PyObject **)((char *)owner + at); }
static inline void put(PyObject **at, PyObject *value) { Py_XSETREF(*at, value); }

/* An exception that it leaves is the twin's affair, as all is that is not plain. */
static inline bool number(PyObject *value, int64_t *out)
{
    return value != NULL && whole(value, INT64_MIN, INT64_MAX, out) == 0;
}

static bool number_of(PyObject *owner, PyObject *name, int64_t *out)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    bool found = number(value, out);
    Py_XDECREF(value);
    return found;
}

static bool is_plain(PyObject *log, int64_t epoch, const BatchNumbers *batch, int64_t base, PyObject **segment,
                     PyObject **file, int64_t *position)
{
    PyObject *closed = PyObject_GetAttr(log, of_closed), *room = PyObject_GetAttr(log, of_room);
    PyObject *config = PyObject_GetAttr(log, of_config), *segments = PyObject_GetAttr(log, of_segments);
    PyObject *system = PyObject_GetAttr(files, of_system);
    bool plain = false;
    int64_t bytes, timestamp, last, newest, fd, since, interval;
    if (closed == Py_False && system != NULL && Py_IS_TYPE(system, system_class) && room != NULL && PyTuple_Check(room) &&
        PyTuple_GET_SIZE(room) == ROOM_FIELDS && PyTuple_GET_ITEM(room, ROOM_CONFIG) == config && segments != NULL &&
        PyList_CheckExact(segments) && PyList_GET_SIZE(segments) > 0) {
        *segment = PyList_GET_ITEM(segments, PyList_GET_SIZE(segments) - 1);
        if (PyTuple_GET_ITEM(room, ROOM_SEGMENT) == *segment && Py_IS_TYPE(*segment, segment_class) &&
            *slot(*segment, segment_at[SEGMENT_IS_FULL]) == Py_False) {
            *file = *slot(*segment, segment_at[SEGMENT_LOG]);
            plain = *file != NULL && Py_IS_TYPE(*file, file_class) && number(*slot(*file, file_at[FILE_FD]), &fd) &&
                    fd >= 0 && number(*slot(*file, file_at[FILE_SIZE]), position) && *position > 0 &&
                    number(PyTuple_GET_ITEM(room, ROOM_BYTES), &bytes) && *position + batch->size <= bytes &&
                    number(PyTuple_GET_ITEM(room, ROOM_TIMESTAMP), &timestamp) && batch->max_timestamp <= timestamp &&
                    number(PyTuple_GET_ITEM(room, ROOM_LAST_OFFSET), &last) && base + batch->delta <= last &&
                    number(PyTuple_GET_ITEM(room, ROOM_EPOCH), &newest) && epoch == newest &&
                    number(*slot(*segment, segment_at[SEGMENT_SINCE]), &since) &&
                    number_of(config, of_interval, &interval) && since <= interval;
        }
    }
    Py_XDECREF(closed);
    Py_XDECREF(room);
    Py_XDECREF(config);
    Py_XDECREF(segments);
    Py_XDECREF(system);
    return plain;
}

static bool write_batch(int fd, const BatchNumbers *batch, int64_t base, int64_t epoch, int64_t position)
{
    uint8_t bytes[PLAIN_BYTES_MAX];
    Py_buffer view;
    if (PyObject_GetBuffer(batch->buffer, &view, PyBUF_SIMPLE) < 0) return false;
    bool is_whole = batch->start + batch->size <= view.len;
    if (is_whole) memcpy(bytes, (const char *)view.buf + batch->start, (size_t)batch->size);
    PyBuffer_Release(&view);
    if (!is_whole) return false;
    put64(bytes, (uint64_t)base);
    put32(bytes + 12, (uint32_t)epoch);
    /* What is written in part is written again, from the same position, by the full way; a batch behind it never stands. */
    return pwrite(fd, bytes, (size_t)batch->size, (off_t)position) == (ssize_t)batch->size;
}

/* Log._append_plain(batch, leader_epoch), behind the log */
static PyObject *append_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    BatchNumbers batch;
    int64_t base, epoch, position = 0, fd = -1, since = 0, timestamp;
    PyObject *log, *segment = NULL, *file = NULL;
    if (count != 3 || segment_class == NULL || !batch_numbers(args[1], &batch) || batch.size > PLAIN_BYTES_MAX ||
        batch.size < PATCHED_BYTES || !number(args[2], &epoch) || epoch < INT32_MIN || epoch > INT32_MAX)
        goto not_plain;
    log = args[0];
    if (!number_of(log, of_end, &base) || !is_plain(log, epoch, &batch, base, &segment, &file, &position)) goto not_plain;
    number(*slot(file, file_at[FILE_FD]), &fd);
    number(*slot(segment, segment_at[SEGMENT_SINCE]), &since);
    if (!number(*slot(segment, segment_at[SEGMENT_TIMESTAMP]), &timestamp)) goto not_plain;
    /* All that may fail for want of memory comes before the write. */
    PyObject *tail = PyObject_GetAttr(log, of_tail), *place = place_class->tp_alloc(place_class, 4);
    PyObject *first = PyLong_FromLongLong(base), *last = PyLong_FromLongLong(base + batch.delta);
    PyObject *end = PyLong_FromLongLong(base + batch.delta + 1), *size = PyLong_FromLongLong(batch.size);
    PyObject *from = PyLong_FromLongLong(position), *grown = PyLong_FromLongLong(position + batch.size);
    PyObject *indexed = PyLong_FromLongLong(since + batch.size), *newest = PyLong_FromLongLong(batch.max_timestamp);
    PyObject *result = NULL;
    if (tail != NULL && place != NULL && first != NULL && last != NULL && end != NULL && size != NULL && from != NULL &&
        grown != NULL && indexed != NULL && newest != NULL) {
        PyTuple_SET_ITEM(place, 0, Py_NewRef(last));
        PyTuple_SET_ITEM(place, 1, Py_NewRef(segment));
        PyTuple_SET_ITEM(place, 2, Py_NewRef(from));
        PyTuple_SET_ITEM(place, 3, Py_NewRef(size));
        if (!write_batch((int)fd, &batch, base, epoch, position)) {
            result = leave_to_twin("append_plain", args, count, NULL);
        } else {
            put(slot(file, file_at[FILE_SIZE]), Py_NewRef(grown));
            put(slot(file, file_at[FILE_USED]), Py_NewRef(Py_True));
            put(slot(segment, segment_at[SEGMENT_SINCE]), Py_NewRef(indexed));
            if (batch.max_timestamp > timestamp) {
                put(slot(segment, segment_at[SEGMENT_TIMESTAMP]), Py_NewRef(newest));
                put(slot(segment, segment_at[SEGMENT_OFFSET]), Py_NewRef(last));
            }
            PyObject *added = PyObject_CallMethodOneArg(tail, of_append, place);
            if (added != NULL && PyObject_SetAttr(log, of_end, end) == 0) result = Py_NewRef(first);
            Py_XDECREF(added);
        }
    }
    PyObject *owned[] = {tail, place, first, last, end, size, from, grown, indexed, newest};
    for (size_t each = 0; each < sizeof owned / sizeof *owned; each++) Py_XDECREF(owned[each]);
    return result;
not_plain:
    return leave_to_twin("append_plain", args, count, NULL);
}

static PyMethodDef method = {
    "append_plain", (PyCFunction)(void (*)(void))append_plain, METH_FASTCALL, "A small batch into the active segment."};

int log_ready(PyObject *module)
{
    struct {
        PyObject **kept;
        const char *name;
    } words[] = {
        {&of_closed, "is_closed"}, {&of_room, "_room"},     {&of_config, "config"},
        {&of_segments, "segments"}, {&of_end, "log_end_offset"}, {&of_tail, "_tail"},
        {&of_interval, "index_interval_bytes"}, {&of_system, "system"}, {&of_append, "append"},
    };
    for (size_t each = 0; each < sizeof words / sizeof *words; each++)
        if ((*words[each].kept = PyUnicode_InternFromString(words[each].name)) == NULL) return -1;
    return add_method(module, &method);
}
