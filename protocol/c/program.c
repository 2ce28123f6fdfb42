/* Programs: the field table of one version from protocol/program.py, in a form that needs no look-up. */

#include "core.h"
#include <structmember.h>

PyTypeObject *program_type;

static void struct_free(Struct *freed)
{
    if (freed == NULL) return;
    for (Py_ssize_t at = 0; freed->fields != NULL && at < freed->count; at++) {
        Py_XDECREF(freed->fields[at].name);
        Py_XDECREF(freed->fields[at].default_value);
        struct_free(freed->fields[at].nested);
    }
    Py_XDECREF(freed->made);
    Py_XDECREF(freed->declared);
    PyMem_Free(freed->fields);
    PyMem_Free(freed->tagged);
    PyMem_Free(freed);
}

/* A slot of `__slots__` is a member descriptor for an object. Only such a slot is written without the interpreter. */
Py_ssize_t slot_offset(PyTypeObject *type, PyObject *name)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    if (found == NULL) {
        PyErr_Clear();
        return -1;
    }
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDescrObject *descriptor = (PyMemberDescrObject *)found;
        if (descriptor->d_member->type == T_OBJECT_EX && descriptor->d_member->flags == 0 &&
            PyType_IsSubtype(type, PyDescr_TYPE(descriptor)))
            offset = descriptor->d_member->offset;
    }
    Py_DECREF(found);
    return offset;
}

int slots_of(PyObject *class, const char *const *names, int count, Py_ssize_t *at)
{
    for (int slot = 0; slot < count; slot++) {
        PyObject *name = PyUnicode_InternFromString(names[slot]);
        if (name == NULL) return -1;
        at[slot] = slot_offset((PyTypeObject *)class, name);
        Py_DECREF(name);
        if (at[slot] < 0) {
            PyErr_Format(PyExc_TypeError, "%R has no slot %s", class, names[slot]);
            return -1;
        }
    }
    return 0;
}

static Struct *struct_of(PyObject *table);

static int field_from(Field *field, PyTypeObject *made, PyTypeObject *declared, PyObject *entry)
{
    int kind, is_array, nullable;
    long long tag;
    PyObject *name, *default_value, *nested;
    if (!PyTuple_Check(entry)) {
        PyErr_SetString(PyExc_TypeError, "the declaration of a field must be a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(entry, "UippLOO:field", &name, &kind, &is_array, &nullable, &tag, &default_value, &nested))
        return -1;
    bool has_fields = kind == KIND_STRUCT || kind == KIND_TAGGED_STRUCT;
    if (kind < 0 || kind >= KINDS || has_fields != (nested != Py_None)) {
        PyErr_Format(PyExc_ValueError, "%U has an unknown kind, or has a struct although its kind has none", name);
        return -1;
    }
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    field->name = name;
    field->default_value = Py_NewRef(default_value);
    field->kind = (Kind)kind;
    field->is_array = is_array;
    field->nullable = nullable;
    field->tag = tag;
    field->offset = slot_offset(declared, name);
    if (field->offset >= 0 && slot_offset(made, name) != field->offset) field->offset = -1;
    if (has_fields) {
        field->nested = struct_of(nested);
        if (field->nested == NULL) return -1;
    }
    return 0;
}

static int collect_tagged(Struct *made)
{
    made->tagged = PyMem_Calloc((size_t)made->count + 1, sizeof(Field *));
    if (made->tagged == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < made->count; at++) {
        Field *field = &made->fields[at];
        if (field->tag < 0) continue;
        Py_ssize_t place = made->tagged_count++;
        for (; place > 0 && made->tagged[place - 1]->tag > field->tag; place--)
            made->tagged[place] = made->tagged[place - 1];
        made->tagged[place] = field;
    }
    if (made->tagged_count > 127) {
        PyErr_SetString(PyExc_ValueError, "a struct has more than 127 tagged fields");
        return -1;
    }
    return 0;
}

/* (class, class with all fields, (field, ...)) */
static Struct *struct_of(PyObject *table)
{
    PyObject *made_class, *declared, *fields;
    if (!PyTuple_Check(table)) {
        PyErr_SetString(PyExc_TypeError, "the declaration of a struct must be a tuple");
        return NULL;
    }
    if (!PyArg_ParseTuple(table, "O!O!O!:struct", &PyType_Type, &made_class, &PyType_Type, &declared, &PyTuple_Type,
                          &fields))
        return NULL;
    Struct *made = PyMem_Calloc(1, sizeof(Struct));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    made->made = (PyTypeObject *)Py_NewRef(made_class);
    made->declared = (PyTypeObject *)Py_NewRef(declared);
    made->count = PyTuple_GET_SIZE(fields);
    made->fields = PyMem_Calloc((size_t)made->count + 1, sizeof(Field));
    if (made->fields == NULL) {
        PyErr_NoMemory();
        struct_free(made);
        return NULL;
    }
    for (Py_ssize_t at = 0; at < made->count; at++) {
        if (field_from(&made->fields[at], made->made, made->declared, PyTuple_GET_ITEM(fields, at)) < 0) {
            struct_free(made);
            return NULL;
        }
    }
    if (collect_tagged(made) < 0) {
        struct_free(made);
        return NULL;
    }
    return made;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *parameters[] = {"table", "flexible", "strict", "fallback", NULL};
    PyObject *table, *fallback;
    int flexible, strict;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OppO:Program", parameters, &table, &flexible, &strict, &fallback))
        return NULL;
    if (names.malformed_request == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "set_up_messages has not been called");
        return NULL;
    }
    Struct *root = struct_of(table);
    if (root == NULL) return NULL;
    Program *program = (Program *)type->tp_alloc(type, 0);
    if (program == NULL) {
        struct_free(root);
        return NULL;
    }
    program->root = root;
    program->flexible = flexible;
    program->strict = strict;
    program->fallback = Py_NewRef(fallback);
    return (PyObject *)program;
}

static void program_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct_free(((Program *)self)->root);
    Py_XDECREF(((Program *)self)->fallback);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *decode(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return program_decode((Program *)self, args, count);
}

static PyObject *encode(PyObject *self, PyObject *message) { return program_encode((Program *)self, message); }

static PyObject *encode_record(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return program_encode_record((Program *)self, args, count);
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL, "decode(buffer, offset): the message at the offset"},
    {"encode", encode, METH_O, "encode(message): the chunks of a message"},
    {"encode_record", (PyCFunction)(void (*)(void))encode_record, METH_FASTCALL,
     "encode_record(record, prefix): the bytes of a record, preceded by the 16-bit prefix unless the prefix is None"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Reads and writes one version of a message."},
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_free},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "protocol.compiled.Program",
    .basicsize = sizeof(Program),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int program_ready(PyObject *module)
{
    program_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (program_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "Program", (PyObject *)program_type);
}
