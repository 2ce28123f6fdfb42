/* The walk over the records of a batch: the twin of `walk` in protocol/record_walk.py.
 *
 * An iterator that stops after each slice, as the generator does, and returns the result at the end. It holds the buffer
 * only within a slice, so that its owner may release the buffer when the walk is abandoned. */

#include "core.h"

#define RECORD_BYTES_MIN 7

static PyObject *corrupt_batch, *reason_records, *reason_length, *reason_count, *walked_class;
static PyTypeObject *walk_type;

typedef struct {
    PyObject_HEAD
    PyObject *body, *suspect;
    int128 earliest, latest, greatest;
    int64_t count, index, slice, left;
    bool wants_keys, in_a_row, is_begun, is_ended;
    /* State inside of a record whose headers did not fit into a slice. */
    bool in_headers, length_is_odd;
    int64_t position, end, headers;
} Walk;

typedef struct {
    const uint8_t *data;
    int64_t size;
} Body;

static long long records_per_slice;

int walk_set_up(PyObject *corrupt, PyObject *records, PyObject *length, PyObject *count, PyObject *walked, long long slice)
{
    records_per_slice = slice;
    Py_XSETREF(corrupt_batch, Py_NewRef(corrupt));
    Py_XSETREF(reason_records, Py_NewRef(records));
    Py_XSETREF(reason_length, Py_NewRef(length));
    Py_XSETREF(reason_count, Py_NewRef(count));
    Py_XSETREF(walked_class, Py_NewRef(walked));
    return 0;
}

/* Consumes the detail. */
static int corrupt(PyObject *reason, PyObject *detail)
{
    PyObject *error = detail == NULL ? NULL : PyObject_CallFunctionObjArgs(corrupt_batch, reason, detail, NULL);
    if (error != NULL) PyErr_SetObject(corrupt_batch, error);
    Py_XDECREF(error);
    Py_XDECREF(detail);
    return -1;
}

static int past_the_end(void)
{
    return corrupt(reason_records, PyUnicode_FromString("a record reaches past the end of its batch"));
}

/* A varint, still zig-zag encoded. Ten bytes have up to 70 bits. */
static int read_long(const Body *body, int64_t *position, int bytes_max, PyObject *reason, unsigned __int128 *out)
{
    unsigned __int128 value = 0;
    for (int bytes = 0; bytes < bytes_max; bytes++) {
        if (*position >= body->size) return past_the_end();
        uint8_t byte = body->data[(*position)++];
        value |= (unsigned __int128)(byte & 127) << 7 * bytes;
        if (byte < 128) {
            *out = value;
            return 0;
        }
    }
    return corrupt(reason, PyUnicode_FromFormat("a variable-length integer is longer than %d bytes", bytes_max));
}

static inline int read_folded(const Body *body, int64_t *position, PyObject *reason, int64_t *out)
{
    if (*position < body->size && body->data[*position] < 128) {
        *out = body->data[(*position)++];
        return 0;
    }
    unsigned __int128 value = 0;
    if (read_long(body, position, VARINT_BYTES_MAX, reason, &value) < 0) return -1;
    *out = (int64_t)value;
    return 0;
}

static inline int64_t unfolded(int64_t value) { return (value >> 1) ^ -(value & 1); }

static int tell_suspect(Walk *walk, int128 delta, bool has_key)
{
    PyObject *index = PyLong_FromLongLong(walk->index), *number = number_of_128(delta), *said = NULL;
    if (index != NULL && number != NULL)
        said = PyObject_CallFunctionObjArgs(walk->suspect, index, number, has_key ? Py_True : Py_False, NULL);
    Py_XDECREF(index);
    Py_XDECREF(number);
    Py_XDECREF(said);
    return said == NULL ? -1 : 0;
}

/* Skips both after checking their lengths. */
static int pass_key_and_value(Walk *walk, const Body *body, int128 delta)
{
    int64_t key, value;
    if (read_folded(body, &walk->position, reason_records, &key) < 0) return -1;
    bool has_key = !(key & 1);
    if (has_key) walk->position += key >> 1;
    if (delta < walk->earliest || delta > walk->latest || (!has_key && walk->wants_keys))
        if (tell_suspect(walk, delta, has_key) < 0) return -1;
    if (read_folded(body, &walk->position, reason_records, &value) < 0) return -1;
    if (!(value & 1)) walk->position += value >> 1;
    return 0;
}

static int begin_headers(Walk *walk, const Body *body)
{
    int64_t folded;
    /* The number 0 may also be encoded as 0x80 0x00, whose first byte looks like a number above 0. */
    walk->in_headers = walk->position < body->size && body->data[walk->position] != 0;
    if (read_folded(body, &walk->position, reason_records, &folded) < 0) return -1;
    walk->headers = unfolded(folded);
    if (walk->in_headers && (walk->headers < 0 || walk->headers > walk->end - walk->position))
        return corrupt(reason_records,
                       PyUnicode_FromFormat("a record cannot have %lld headers", (long long)walk->headers));
    return 0;
}

static int begin_record(Walk *walk, const Body *body)
{
    int64_t length, offset;
    unsigned __int128 folded = 0;
    if (walk->position == body->size)
        return corrupt(reason_count,
                       PyUnicode_FromFormat("there are fewer records than the %lld in the batch header",
                                            (long long)walk->count));
    if (read_folded(body, &walk->position, reason_length, &length) < 0) return -1;
    walk->end = walk->position + (length >> 1);
    walk->length_is_odd = length & 1;
    walk->position++; /* the attributes of a record are unused */
    if (read_long(body, &walk->position, VARLONG_BYTES_MAX, reason_records, &folded) < 0) return -1;
    int128 delta = (int128)(folded >> 1) ^ -(int128)(folded & 1);
    if (delta > walk->greatest) walk->greatest = delta;
    if (read_folded(body, &walk->position, reason_records, &offset) < 0) return -1;
    if (offset != walk->index << 1) walk->in_a_row = false;
    return pass_key_and_value(walk, body, delta) < 0 ? -1 : begin_headers(walk, body);
}

/* Count a record or header of the slice; returns whether it was the last of the slice. */
static inline bool ends_slice(Walk *walk)
{
    if (--walk->left > 0) return false;
    walk->left = walk->slice;
    return true;
}

/* 1 if the slice ends among the headers. */
static int pass_headers(Walk *walk, const Body *body)
{
    while (walk->headers > 0) {
        int64_t size;
        if (read_folded(body, &walk->position, reason_records, &size) < 0) return -1;
        if (size & 1) return corrupt(reason_records, PyUnicode_FromString("a header has no key"));
        walk->position += size >> 1;
        if (read_folded(body, &walk->position, reason_records, &size) < 0) return -1;
        if (!(size & 1)) walk->position += size >> 1;
        walk->headers--;
        if (ends_slice(walk)) return 1;
    }
    walk->in_headers = false;
    return 0;
}

static int end_record(Walk *walk)
{
    if (walk->position != walk->end || walk->length_is_odd)
        return corrupt(reason_records,
                       PyUnicode_FromFormat("record %lld does not end where its length field says",
                                            (long long)walk->index));
    walk->index++;
    return ends_slice(walk);
}

/* 1 at the end of a slice, 0 at the end of the walk. */
static int go_on(Walk *walk, const Body *body)
{
    while (walk->in_headers || walk->index < walk->count) {
        if (!walk->in_headers && begin_record(walk, body) < 0) return -1;
        int stops = walk->in_headers ? pass_headers(walk, body) : 0;
        if (stops == 0) stops = end_record(walk);
        if (stops) return stops;
    }
    if (walk->position != body->size)
        return corrupt(reason_count,
                       PyUnicode_FromFormat("%lld bytes follow the last of %lld records",
                                            (long long)(body->size - walk->position), (long long)walk->count));
    return 0;
}

static int check_count(const Walk *walk, const Body *body)
{
    if ((int128)walk->count * RECORD_BYTES_MIN <= body->size) return 0;
    return corrupt(reason_count, PyUnicode_FromFormat("%lld bytes cannot hold %lld records", (long long)body->size,
                                                      (long long)walk->count));
}

static PyObject *end_with_what_was_found(Walk *walk)
{
    PyObject *greatest = number_of_128(walk->greatest);
    PyObject *found = greatest == NULL ? NULL
                                       : PyObject_CallFunctionObjArgs(walked_class, greatest,
                                                                      walk->in_a_row ? Py_True : Py_False, NULL);
    /* Create the exception here, because a tuple would be taken for its arguments. */
    PyObject *end = found == NULL ? NULL : PyObject_CallOneArg(PyExc_StopIteration, found);
    if (end != NULL) PyErr_SetObject(PyExc_StopIteration, end);
    Py_XDECREF(greatest);
    Py_XDECREF(found);
    Py_XDECREF(end);
    return NULL;
}

static PyObject *walk_next(PyObject *self)
{
    Walk *walk = (Walk *)self;
    if (walk->is_ended) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(walk->body, &view, PyBUF_SIMPLE) < 0) return NULL;
    Body body = {view.buf, view.len};
    int stops = walk->is_begun ? 0 : check_count(walk, &body);
    walk->is_begun = true;
    if (!stops) stops = go_on(walk, &body);
    PyBuffer_Release(&view);
    if (stops > 0) return Py_NewRef(Py_None);
    walk->is_ended = true;
    return stops < 0 ? NULL : end_with_what_was_found(walk);
}

/* walk(body, count, *, earliest_delta, latest_delta, wants_keys, suspect, slice_records) */
PyObject *core_walk(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *parameters[] = {"body", "count", "earliest_delta", "latest_delta", "wants_keys", "suspect",
                                 "slice_records", NULL};
    PyObject *body, *earliest = NULL, *latest = NULL, *suspect = NULL;
    long long count, slice = records_per_slice;
    int wants_keys = -1;
    if (corrupt_batch == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "set_up_walk has not been called");
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OL|$O!O!pOL:walk", parameters, &body, &count, &PyLong_Type,
                                     &earliest, &PyLong_Type, &latest, &wants_keys, &suspect, &slice))
        return NULL;
    if (earliest == NULL || latest == NULL || suspect == NULL || wants_keys < 0) {
        PyErr_SetString(PyExc_TypeError, "walk() misses a keyword-only argument");
        return NULL;
    }
    Walk *walk = PyObject_GC_New(Walk, walk_type);
    if (walk == NULL) return NULL;
    memset((char *)walk + sizeof(PyObject), 0, sizeof(Walk) - sizeof(PyObject));
    walk->body = Py_NewRef(body);
    walk->suspect = Py_NewRef(suspect);
    walk->count = count;
    walk->slice = walk->left = slice;
    walk->wants_keys = wants_keys;
    walk->in_a_row = true;
    walk->greatest = -((int128)1 << 64);
    PyObject_GC_Track(walk);
    if (whole128(earliest, &walk->earliest) < 0 || whole128(latest, &walk->latest) < 0) Py_CLEAR(walk);
    return (PyObject *)walk;
}

static int walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Walk *)self)->body);
    Py_VISIT(((Walk *)self)->suspect);
    return 0;
}

static int walk_clear(PyObject *self)
{
    ((Walk *)self)->is_ended = true;
    Py_CLEAR(((Walk *)self)->body);
    Py_CLEAR(((Walk *)self)->suspect);
    return 0;
}

static void walk_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    walk_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "A walk over records, slice by slice."},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, walk_next},
    {Py_tp_traverse, walk_traverse},
    {Py_tp_clear, walk_clear},
    {Py_tp_dealloc, walk_free},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "protocol.compiled.Walk",
    .basicsize = sizeof(Walk),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int walk_ready(void)
{
    walk_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return walk_type == NULL ? -1 : 0;
}
