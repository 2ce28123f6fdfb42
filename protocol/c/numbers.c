/* Converts between Python's numbers and big-endian bytes, as the module struct does for the Python twins. */

#include "core.h"

const uint8_t SIZE_OF_KIND[KINDS] = {
    [KIND_BOOL] = 1,   [KIND_INT8] = 1,   [KIND_INT16] = 2,  [KIND_INT32] = 4,   [KIND_INT64] = 8, [KIND_UINT8] = 1,
    [KIND_UINT16] = 2, [KIND_UINT32] = 4, [KIND_UINT64] = 8, [KIND_FLOAT64] = 8, [KIND_UUID] = 16,
};

int buffer_grow(Buffer *buffer, Py_ssize_t more)
{
    if (more > PY_SSIZE_T_MAX / 2 - buffer->size) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t room = 2 * (buffer->size + more);
    uint8_t *moved = PyMem_Realloc(buffer->data == buffer->first ? NULL : buffer->data, (size_t)room);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (buffer->data == buffer->first) memcpy(moved, buffer->first, (size_t)buffer->size);
    buffer->data = moved;
    buffer->room = room;
    return 0;
}

static int out_of_range(void)
{
    PyErr_SetString(PyExc_OverflowError, "the number is out of the range of its field");
    return -1;
}

int whole(PyObject *value, int64_t least, int64_t most, int64_t *out)
{
    int overflow;
    long long found;
    if (PyLong_Check(value)) {
        found = PyLong_AsLongLongAndOverflow(value, &overflow);
    } else {
        PyObject *index = PyNumber_Index(value);
        if (index == NULL) return -1;
        found = PyLong_AsLongLongAndOverflow(index, &overflow);
        Py_DECREF(index);
    }
    if (overflow || found < least || found > most) return out_of_range();
    if (found == -1 && PyErr_Occurred()) return -1;
    *out = found;
    return 0;
}

int whole128(PyObject *value, int128 *out)
{
    int overflow;
    long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (!overflow) {
        if (small == -1 && PyErr_Occurred()) return -1;
        *out = small;
        return 0;
    }
    PyObject *shift = PyLong_FromLong(64);
    PyObject *high = shift == NULL ? NULL : PyNumber_Rshift(value, shift);
    Py_XDECREF(shift);
    if (high == NULL) return -1;
    small = PyLong_AsLongLong(high);
    Py_DECREF(high);
    if (small == -1 && PyErr_Occurred()) return -1;
    unsigned long long low = PyLong_AsUnsignedLongLongMask(value);
    *out = (int128)((unsigned __int128)(uint64_t)small << 64 | low);
    return 0;
}

PyObject *number_of_128(int128 value)
{
    if (value >= INT64_MIN && value <= INT64_MAX) return PyLong_FromLongLong((long long)value);
    PyObject *high = PyLong_FromLongLong((long long)(value >> 64)), *shift = PyLong_FromLong(64);
    PyObject *low = PyLong_FromUnsignedLongLong((unsigned long long)value), *shifted = NULL, *sum = NULL;
    if (high != NULL && shift != NULL && low != NULL) shifted = PyNumber_Lshift(high, shift);
    if (shifted != NULL) sum = PyNumber_Or(shifted, low);
    Py_XDECREF(high);
    Py_XDECREF(shift);
    Py_XDECREF(low);
    Py_XDECREF(shifted);
    return sum;
}

PyObject *read_number(const uint8_t *at, Kind kind)
{
    switch (kind) {
    case KIND_BOOL:
        return PyBool_FromLong(*at != 0);
    case KIND_INT8:
        return PyLong_FromLong((int8_t)*at);
    case KIND_INT16:
        return PyLong_FromLong((int16_t)get16(at));
    case KIND_INT32:
        return PyLong_FromLong((int32_t)get32(at));
    case KIND_INT64:
        return PyLong_FromLongLong((int64_t)get64(at));
    case KIND_UINT8:
        return PyLong_FromLong(*at);
    case KIND_UINT16:
        return PyLong_FromLong(get16(at));
    case KIND_UINT32:
        return PyLong_FromUnsignedLong(get32(at));
    case KIND_UINT64:
        return PyLong_FromUnsignedLongLong(get64(at));
    case KIND_FLOAT64: {
        double value = PyFloat_Unpack8((const char *)at, 0);
        return value == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(value);
    }
    default:
        PyErr_BadInternalCall();
        return NULL;
    }
}

static int write_unsigned_64(uint8_t *at, PyObject *value)
{
    PyObject *index = PyNumber_Index(value);
    if (index == NULL) return -1;
    unsigned long long found = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (found == (unsigned long long)-1 && PyErr_Occurred()) return -1;
    put64(at, found);
    return 0;
}

int write_number(uint8_t *at, Kind kind, PyObject *value)
{
    int64_t found = 0;
    int truth;
    switch (kind) {
    case KIND_BOOL:
        truth = PyObject_IsTrue(value);
        if (truth < 0) return -1;
        *at = (uint8_t)truth;
        return 0;
    case KIND_INT8:
        if (whole(value, INT8_MIN, INT8_MAX, &found) < 0) return -1;
        *at = (uint8_t)found;
        return 0;
    case KIND_UINT8:
        if (whole(value, 0, UINT8_MAX, &found) < 0) return -1;
        *at = (uint8_t)found;
        return 0;
    case KIND_INT16:
        if (whole(value, INT16_MIN, INT16_MAX, &found) < 0) return -1;
        put16(at, (uint16_t)found);
        return 0;
    case KIND_UINT16:
        if (whole(value, 0, UINT16_MAX, &found) < 0) return -1;
        put16(at, (uint16_t)found);
        return 0;
    case KIND_INT32:
        if (whole(value, INT32_MIN, INT32_MAX, &found) < 0) return -1;
        put32(at, (uint32_t)found);
        return 0;
    case KIND_UINT32:
        if (whole(value, 0, UINT32_MAX, &found) < 0) return -1;
        put32(at, (uint32_t)found);
        return 0;
    case KIND_INT64:
        if (whole(value, INT64_MIN, INT64_MAX, &found) < 0) return -1;
        put64(at, (uint64_t)found);
        return 0;
    case KIND_UINT64:
        return write_unsigned_64(at, value);
    case KIND_FLOAT64: {
        double real = PyFloat_AsDouble(value);
        if (real == -1.0 && PyErr_Occurred()) return -1;
        return PyFloat_Pack8(real, (char *)at, 0);
    }
    default:
        PyErr_BadInternalCall();
        return -1;
    }
}

/* The 16 bytes of a UUID; None is the zero uuid. */
int write_uuid(uint8_t *at, PyObject *value)
{
    if (value == Py_None) {
        memset(at, 0, 16);
        return 0;
    }
    PyObject *raw = PyObject_GetAttr(value, names.bytes_attribute);
    if (raw == NULL) return -1;
    if (!PyBytes_Check(raw) || PyBytes_GET_SIZE(raw) != 16) {
        Py_DECREF(raw);
        return out_of_range();
    }
    memcpy(at, PyBytes_AS_STRING(raw), 16);
    Py_DECREF(raw);
    return 0;
}
