/* The module protocol.compiled. Each Python module whose twin is in here hands over the classes and limits that it
 * declares; if ODRADEK_PURE is 1, the module cannot be imported. */

#include "core.h"
#include <stdlib.h>

/* By which a test sees that the core was built from the sources that are there. */
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
        PyErr_SetString(PyExc_TypeError, "the header of a request is a tuple");
        return NULL;
    }
    if (frame_set_up(first_flexible) < 0) return NULL;
    keep(&names.malformed_request, malformed);
    keep((PyObject **)&names.request_header, header);
    Py_RETURN_NONE;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"set_up_messages", WITH_KEYWORDS(set_up_messages), "What protocol/decode.py and protocol/encode.py declare."},
    {"set_up_frames", WITH_KEYWORDS(set_up_frames), "What protocol/frame.py declares."},
    {"parse_request_header", core_parse_request_header, METH_O, "The header at the start of a frame."},
    {"keep_freed_memory", core_keep_freed_memory, METH_VARARGS, "Let the allocator keep what was freed."},
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
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (PyModule_AddStringConstant(module, "SOURCES", SOURCES) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    names.bytes_attribute = PyUnicode_InternFromString("bytes");
    if (names.bytes_attribute == NULL || program_ready(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
