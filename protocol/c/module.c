/* The module protocol.compiled. Each Python module with a twin here passes the classes and limits that it
 * declares. If ODRADEK_PURE is 1, the module cannot be imported. */

#include "core.h"
#include <stddef.h>
#include <stdlib.h>

/* A test compares this hash with that of the sources. */
#ifndef SOURCES
#define SOURCES ""
#endif

struct Names names;

static void keep(PyObject **kept, PyObject *given) { Py_XSETREF(*kept, Py_NewRef(given)); }

static PyObject *set_up_messages(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *parameters[] = {"malformed_request", "long_message",     "uuid_of_bytes", "string_bytes_max",
                                 "elements_at_once",  "inline_bytes_max", "tags_max",      NULL};
    PyObject *malformed, *too_long, *uuid_of_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOnnnn", parameters, &malformed, &too_long, &uuid_of_bytes,
                                     &names.string_bytes_max, &names.elements_at_once, &names.inline_bytes_max,
                                     &names.tags_max))
        return NULL;
    keep(&names.malformed_request, malformed);
    keep(&names.long_message, too_long);
    keep(&names.uuid_of_bytes, uuid_of_bytes);
    Py_RETURN_NONE;
}

static PyObject *set_up_frames(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *parameters[] = {"malformed_request", "request_header", "first_flexible", "tags_max", NULL};
    PyObject *malformed, *header, *first_flexible;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!O!n", parameters, &malformed, &PyType_Type, &header,
                                     &PyDict_Type, &first_flexible, &names.tags_max))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)header, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "the class of request headers must be a tuple");
        return NULL;
    }
    if (frame_set_up(first_flexible) < 0) return NULL;
    keep(&names.malformed_request, malformed);
    keep((PyObject **)&names.request_header, header);
    Py_RETURN_NONE;
}

static PyObject *set_up_batches(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *parameters[] = {"batch", "corrupt_header", "one_piece_bytes", NULL};
    PyObject *batch, *corrupt;
    Py_ssize_t piece_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!On", parameters, &PyType_Type, &batch, &corrupt, &piece_bytes) ||
        batch_set_up(batch, corrupt, piece_bytes) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_up_walk(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *parameters[] = {"corrupt_batch", "records", "length", "count", "walked", "slice_records", NULL};
    PyObject *corrupt, *records, *length, *count, *walked;
    long long slice;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOOOL", parameters, &corrupt, &records, &length, &count, &walked,
                                     &slice) ||
        walk_set_up(corrupt, records, length, count, walked, slice) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_up_twins(PyObject *module, PyObject *twins)
{
    if (!PyDict_Check(twins)) {
        PyErr_SetString(PyExc_TypeError, "the twins must be a dictionary");
        return NULL;
    }
    keep(&names.twins, twins);
    Py_RETURN_NONE;
}

PyObject *leave_to_twin(const char *name, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyErr_Clear();
    PyObject *twin = names.twins == NULL ? NULL : PyDict_GetItemString(names.twins, name);
    if (twin != NULL) {
        Py_INCREF(twin);
        PyObject *result = PyObject_Vectorcall(twin, args, (size_t)count, keywords);
        Py_DECREF(twin);
        return result;
    }
    PyErr_Format(PyExc_RuntimeError, "%s has no twin", name);
    return NULL;
}

/* A C function that is an attribute of a class is not a method. Wrapped in one of these it is, and the interpreter calls it
 * without a bound method in between, as it does with functions written in Python. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function;
} Method;

static PyObject *method_call(PyObject *self, PyObject *const *args, size_t count, PyObject *keywords)
{
    return PyObject_Vectorcall(((Method *)self)->function, args, count, keywords);
}

static PyObject *method_of(PyObject *self, PyObject *owner, PyObject *class)
{
    return owner == NULL ? Py_NewRef(self) : PyMethod_New(self, owner);
}

static void method_dealloc(PyObject *self)
{
    Py_DECREF(((Method *)self)->function);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject method_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "protocol.compiled.Method",
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Method, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = method_of,
    .tp_dealloc = method_dealloc,
};

int add_method(PyObject *module, PyMethodDef *definition)
{
    if (PyType_Ready(&method_type) < 0) return -1;
    Method *made = PyObject_New(Method, &method_type);
    if (made == NULL) return -1;
    made->call = method_call;
    made->function = PyCFunction_New(definition, NULL);
    if (made->function == NULL) {
        PyObject_Free(made);
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, definition->ml_name, (PyObject *)made);
    Py_DECREF(made);
    return failed;
}

#define FAST_WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS
#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"set_up_messages", WITH_KEYWORDS(set_up_messages), "Set the constants of protocol/decode.py and encode.py."},
    {"set_up_frames", WITH_KEYWORDS(set_up_frames), "Set the classes and tables of protocol/frame.py."},
    {"set_up_batches", WITH_KEYWORDS(set_up_batches), "Set the classes and errors of protocol/batch.py."},
    {"set_up_walk", WITH_KEYWORDS(set_up_walk), "Set the classes and errors of protocol/record_walk.py."},
    {"set_fields", set_fields, METH_VARARGS, "Set the field names of a NamedTuple."},
    {"set_constructor", set_constructor, METH_VARARGS, "Create instances of a class whose constructor only sets fields."},
    {"set_up_twins", set_up_twins, METH_O, "Set the Python twin of each function, by the function's name."},
    {"crc32c", core_crc32c, METH_VARARGS, "crc32c(data, crc=0, in_hardware=True)"},
    {"parse_batch", FAST_WITH_KEYWORDS(core_parse_batch), "parse_batch(class, buffer, start=0)"},
    {"patched_header", FAST_WITH_KEYWORDS(core_patched_header), "The first 16 bytes with offset and epoch set."},
    {"encode_record", FAST_WITH_KEYWORDS(core_encode_record), "The bytes of one record in a batch."},
    {"build_batch", FAST_WITH_KEYWORDS(core_build_batch), "A batch of records with consecutive offsets."},
    {"partition_for", FAST_WITH_KEYWORDS(core_partition_for), "The partition of an internal topic for an id."},
    {"end_txn_marker", FAST_WITH_KEYWORDS(core_end_txn_marker), "The batch of a transaction marker."},
    {"walk", WITH_KEYWORDS(core_walk), "Walk over the records of a batch, slice by slice."},
    {"response_header", FAST_WITH_KEYWORDS(core_response_header), "The header in front of a response."},
    {"parse_request_header", core_parse_request_header, METH_O, "The header at the start of a frame."},
    {"keep_freed_memory", core_keep_freed_memory, METH_VARARGS, "Make the allocator keep freed memory."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "protocol.compiled",
    .m_doc = "The compiled core: functions of protocol/, each of which has a twin in Python.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit_compiled(void)
{
    const char *pure = getenv("ODRADEK_PURE");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        PyErr_SetString(PyExc_ImportError, "ODRADEK_PURE is 1");
        return NULL;
    }
    crc32c_begin();
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (PyModule_AddStringConstant(module, "SOURCES", SOURCES) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    names.bytes_attribute = PyUnicode_InternFromString("bytes");
    if (names.bytes_attribute == NULL || program_ready(module) < 0 || batch_ready(module) < 0 ||
        walk_ready() < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
