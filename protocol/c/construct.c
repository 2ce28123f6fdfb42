/* Calls of classes whose constructor only sets fields: see protocol/named_tuple.py, protocol/slotted.py. */

#include "core.h"
#include <structmember.h>

typedef struct {
    PyTypeObject *class;
    Py_ssize_t count, positional;
    Py_ssize_t items; /* number of items, if it is a tuple */
    PyObject **names, **defaults; /* a default is NULL if the caller must pass a value */
    Py_ssize_t *offsets;
} Constructor;

/* Hash table by class, at most half full. Classes and entries live as long as the process. */
static Constructor **table;
static size_t table_size, table_used;

static Constructor **place_of(Constructor **in, size_t size, PyTypeObject *class)
{
    size_t at = ((uintptr_t)class >> 5) & (size - 1);
    while (in[at] != NULL && in[at]->class != class) at = (at + 1) & (size - 1);
    return &in[at];
}

static int add_to_table(Constructor *made)
{
    if (2 * (table_used + 1) > table_size) {
        size_t size = table_size == 0 ? 256 : 2 * table_size;
        Constructor **grown = PyMem_Calloc(size, sizeof(Constructor *));
        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t at = 0; at < table_size; at++)
            if (table[at] != NULL) *place_of(grown, size, table[at]->class) = table[at];
        PyMem_Free(table);
        table = grown;
        table_size = size;
    }
    Constructor **place = place_of(table, table_size, made->class);
    table_used += *place == NULL;
    *place = made;
    return 0;
}

static PyObject **field_at(PyObject *made, const Constructor *of, Py_ssize_t index)
{
    return (PyObject **)((char *)made + of->offsets[index]);
}

/* Keyword arguments, after the positional ones. False if one is not a field, or has a value already. */
static bool take_named(const Constructor *of, PyObject *made, PyObject *const *values, PyObject *names)
{
    Py_ssize_t begin = 0; /* callers usually pass fields in their order */
    for (Py_ssize_t given = 0; given < PyTuple_GET_SIZE(names); given++) {
        PyObject *name = PyTuple_GET_ITEM(names, given);
        Py_ssize_t index = begin, left = of->count;
        while (left > 0 && of->names[index] != name) {
            index = index + 1 == of->count ? 0 : index + 1;
            left--;
        }
        if (left == 0 || *field_at(made, of, index) != NULL) return false;
        *field_at(made, of, index) = Py_NewRef(values[given]);
        begin = index + 1 == of->count ? 0 : index + 1;
    }
    return true;
}

static bool take_defaults(const Constructor *of, PyObject *made)
{
    for (Py_ssize_t index = 0; index < of->count; index++) {
        PyObject **field = field_at(made, of, index);
        if (*field != NULL) continue;
        if (of->defaults[index] == NULL) return false;
        *field = Py_NewRef(of->defaults[index]);
    }
    return true;
}

/* For an invalid call, Python's constructor raises the error. */
static PyObject *leave_to_constructor(PyObject *class, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *places = PyTuple_New(count), *named = PyDict_New(), *made = NULL;
    if (places == NULL || named == NULL) goto end;
    for (Py_ssize_t index = 0; index < count; index++) PyTuple_SET_ITEM(places, index, Py_NewRef(args[index]));
    for (Py_ssize_t index = 0; names != NULL && index < PyTuple_GET_SIZE(names); index++)
        if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, index), args[count + index]) < 0) goto end;
    made = PyType_Type.tp_call(class, places, named);
end:
    Py_XDECREF(places);
    Py_XDECREF(named);
    return made;
}

static PyObject *construct(PyObject *class, PyObject *const *args, size_t flags, PyObject *names)
{
    const Constructor *of = *place_of(table, table_size, (PyTypeObject *)class);
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count <= of->positional) {
        PyObject *made = of->class->tp_alloc(of->class, of->items);
        if (made == NULL) return NULL;
        for (Py_ssize_t index = 0; index < count; index++) *field_at(made, of, index) = Py_NewRef(args[index]);
        if ((names == NULL || take_named(of, made, args + count, names)) &&
            (count == of->count || take_defaults(of, made)))
            return made;
        Py_DECREF(made);
    }
    return leave_to_constructor(class, args, count, names);
}

static int fill_in(Constructor *made, PyObject *names, PyObject *defaults, PyObject *missing)
{
    made->names = PyMem_Calloc((size_t)made->count + 1, sizeof(PyObject *));
    made->defaults = PyMem_Calloc((size_t)made->count + 1, sizeof(PyObject *));
    made->offsets = PyMem_Calloc((size_t)made->count + 1, sizeof(Py_ssize_t));
    if (made->names == NULL || made->defaults == NULL || made->offsets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    bool is_tuple = PyType_IsSubtype(made->class, &PyTuple_Type);
    made->items = is_tuple ? made->count : 0;
    for (Py_ssize_t index = 0; index < made->count; index++) {
        PyObject *name = Py_NewRef(PyTuple_GET_ITEM(names, index));
        PyObject *value = PyTuple_GET_ITEM(defaults, index);
        PyUnicode_InternInPlace(&name);
        made->names[index] = name;
        if (value != missing) made->defaults[index] = Py_NewRef(value);
        made->offsets[index] = is_tuple ? (Py_ssize_t)offsetof(PyTupleObject, ob_item) + index * (Py_ssize_t)sizeof(PyObject *)
                                        : slot_offset(made->class, name);
        if (made->offsets[index] < 0) {
            PyErr_Format(PyExc_TypeError, "%R has no slot %R", made->class, name);
            return -1;
        }
    }
    return 0;
}

/* set_constructor(class, names, defaults, positional, missing): the first `positional` names may be passed by position;
   `missing` in place of a default means that there is none. */
PyObject *set_constructor(PyObject *module, PyObject *args)
{
    PyTypeObject *class;
    PyObject *names, *defaults, *missing;
    Py_ssize_t positional;
    if (!PyArg_ParseTuple(args, "O!O!O!nO", &PyType_Type, &class, &PyTuple_Type, &names, &PyTuple_Type, &defaults, &positional,
                          &missing))
        return NULL;
    if (table != NULL && *place_of(table, table_size, class) != NULL) Py_RETURN_NONE;
    Constructor *made = PyMem_Calloc(1, sizeof(Constructor));
    if (made == NULL) return PyErr_NoMemory();
    made->class = class;
    made->count = PyTuple_GET_SIZE(names);
    made->positional = positional;
    if (PyTuple_GET_SIZE(defaults) != made->count) {
        PyErr_SetString(PyExc_ValueError, "defaults must have a value, or `missing`, for each name");
        return NULL;
    }
    if (fill_in(made, names, defaults, missing) < 0 || add_to_table(made) < 0) return NULL;
    Py_INCREF(class);
    class->tp_vectorcall = construct;
    Py_RETURN_NONE;
}
