/* The partition for an id: the twin of a function of protocol/hashing.py. */

#include "core.h"

/* String.hashCode(): over UTF-16 code units. */
static int32_t java_string_hash(PyObject *text)
{
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    uint32_t value = 0;
    for (Py_ssize_t at = 0; at < length; at++) {
        Py_UCS4 unit = PyUnicode_READ(kind, data, at);
        if (unit > 0xFFFF) {
            value = 31 * value + (0xD800 + ((unit - 0x10000) >> 10));
            unit = 0xDC00 + ((unit - 0x10000) & 0x3FF);
        }
        value = 31 * value + unit;
    }
    return (int32_t)value;
}

/* partition_for(key, partitions) */
PyObject *core_partition_for(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t partitions;
    if (count != 2 || (keywords != NULL && PyTuple_GET_SIZE(keywords) > 0) || !PyUnicode_Check(args[0]) ||
        PyUnicode_READY(args[0]) < 0 || whole(args[1], 1, INT32_MAX, &partitions) < 0)
        return leave_to_twin("partition_for", args, count, keywords);
    int64_t value = java_string_hash(args[0]);
    if (value == INT32_MIN) value = 0; /* Utils.abs */
    return PyLong_FromLongLong((value < 0 ? -value : value) % partitions);
}
