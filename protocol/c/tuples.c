/* Fields of a NamedTuple that are read as fast as slots: see protocol/named_tuple.py. */

#include "core.h"
#include <string.h>
#include <structmember.h>

/* A definition lives as long as the process, since descriptors point to it, and classes are created once. */
static PyMemberDef *member_of(PyObject *name, Py_ssize_t index)
{
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);
    if (text == NULL) return NULL;
    PyMemberDef *made = PyMem_Calloc(1, sizeof(PyMemberDef) + (size_t)length + 1);
    if (made == NULL) return (PyMemberDef *)PyErr_NoMemory();
    memcpy(made + 1, text, (size_t)length + 1);
    made->name = (char *)(made + 1);
    made->type = T_OBJECT_EX;
    made->offset = (Py_ssize_t)offsetof(PyTupleObject, ob_item) + index * (Py_ssize_t)sizeof(PyObject *);
    made->flags = READONLY;
    return made;
}

/* set_fields(class, names): for a tuple that always has as many values as there are names */
PyObject *set_fields(PyObject *module, PyObject *args)
{
    PyTypeObject *class;
    PyObject *fields;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &class, &PyTuple_Type, &fields)) return NULL;
    if (!PyType_IsSubtype(class, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "set_fields takes a subclass of tuple");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(fields); index++) {
        PyMemberDef *member = member_of(PyTuple_GET_ITEM(fields, index), index);
        PyObject *descriptor = member == NULL ? NULL : PyDescr_NewMember(class, member);
        if (descriptor == NULL) return NULL;
        int failed = PyObject_SetAttr((PyObject *)class, PyTuple_GET_ITEM(fields, index), descriptor);
        Py_DECREF(descriptor);
        if (failed) return NULL;
    }
    Py_RETURN_NONE;
}
