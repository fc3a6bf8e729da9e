/* Matches the heads of one layout as its regular expression does, at a fraction of the cost.

   A layout (http1.layouts) is a pattern of parts that are never tried twice: literal bytes, and spans of bytes
   of a table. `core.http.patterns` makes the regular expression and these steps from the same parts, so no rule
   about a message is here. Tests compare the two; without this module, `re` is used.
   A match is one pass over at most the bytes given. Nothing recurses or backtracks, and nothing is allocated
   before the whole head fits. A matcher checks each step and each group number when it is made. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>
#define MAX_MARKS 512
enum { LITERAL, UNLESS, SPAN, NOT_AFTER, MARK }; /* kinds of steps: core.http.patterns says what each does */

typedef struct {
    int kind, has_printable;    /* whether all of printable ASCII is in the table */
    const unsigned char *bytes; /* a literal, or a table with a byte for each of 256 */
    Py_ssize_t size, least, most;
} Step;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *program, *fields, *values;
    Step steps[1];
} Matcher;

/* The end of a span, or NULL. Eight bytes of printable ASCII are taken at once, if the table has all of it. */
static const unsigned char *span_end(const Step *step, const unsigned char *at, const unsigned char *end)
{
    const unsigned char *begin = at;
    const uint64_t ones = UINT64_MAX / 255;
    uint64_t word;
    if (end - at > step->most)
        end = at + step->most;
    while (step->has_printable && end - at >= 8) {
        memcpy(&word, at, 8);
        if ((((word - ones * 0x20) & ~word) | (word + ones) | word) & ones * 0x80)
            break; /* a byte below 0x20, or above 0x7e */
        at += 8;
    }
    while (at < end && step->bytes[*at])
        at++;
    return at - begin >= step->least ? at : NULL;
}

/* Run the steps, and note the offset of each mark. Returns the size of the head; -1: it does not match. */
static Py_ssize_t run(const Matcher *self, const unsigned char *begin, Py_ssize_t size, Py_ssize_t *mark)
{
    const unsigned char *at = begin, *end = begin + size;
    const Step *step = self->steps, *last = step + Py_SIZE(self);
    for (; step < last; step++)
        switch (step->kind) {
        case LITERAL:
            if (end - at < step->size || memcmp(at, step->bytes, step->size) != 0)
                return -1;
            at += step->size;
            break;
        case UNLESS:
            if (end - at >= step->size && memcmp(at, step->bytes, step->size) == 0)
                return -1;
            break;
        case SPAN:
            if ((at = span_end(step, at, end)) == NULL)
                return -1;
            break;
        case NOT_AFTER:
            if (at > begin && step->bytes[at[-1]])
                return -1;
            break;
        default:
            *mark++ = at - begin;
        }
    return at - begin;
}

/* The bytes of these groups, one after the other. Group n lies between the marks 2n and 2n + 1. */
static PyObject *join(PyObject *groups, const char *data, const Py_ssize_t *marks)
{
    const unsigned char *group = (const unsigned char *)PyBytes_AS_STRING(groups);
    Py_ssize_t number = PyBytes_GET_SIZE(groups), size = 0;
    for (Py_ssize_t i = 0; i < number; i++)
        size += marks[2 * group[i] + 1] - marks[2 * group[i]];
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    char *to = joined != NULL ? PyBytes_AS_STRING(joined) : NULL;
    for (Py_ssize_t i = 0; joined != NULL && i < number; i++, to += size) {
        size = marks[2 * group[i] + 1] - marks[2 * group[i]];
        memcpy(to, data + marks[2 * group[i]], size);
    }
    return joined;
}

/* A tuple with the bytes of each item's groups. `named`: each second item is a name, which is kept. */
static PyObject *cut(PyObject *items, int named, const char *data, const Py_ssize_t *marks)
{
    PyObject *made = PyTuple_New(PyTuple_GET_SIZE(items));
    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        PyTuple_SET_ITEM(made, i, named && i % 2 == 0 ? Py_NewRef(item) : join(item, data, marks));
        if (PyTuple_GET_ITEM(made, i) == NULL)
            Py_CLEAR(made);
    }
    return made;
}

static PyObject *matcher_match(Matcher *self, PyObject *data)
{
    Py_ssize_t marks[MAX_MARKS];
    if (!PyBytes_Check(data))
        return PyErr_SetString(PyExc_TypeError, "bytes expected"), NULL;
    const char *begin = PyBytes_AS_STRING(data);
    Py_ssize_t size = run(self, (const unsigned char *)begin, PyBytes_GET_SIZE(data), marks);
    if (size < 0)
        Py_RETURN_NONE;
    PyObject *number = PyLong_FromSsize_t(size);
    PyObject *fields = number != NULL ? cut(self->fields, 1, begin, marks) : NULL;
    PyObject *values = fields != NULL ? cut(self->values, 0, begin, marks) : NULL;
    PyObject *match = values != NULL ? PyTuple_Pack(3, number, fields, values) : NULL;
    Py_XDECREF(number), Py_XDECREF(fields), Py_XDECREF(values);
    return match;
}

/* Take over one step of a program. Returns whether it is one. */
static int set_step(Step *step, PyObject *item)
{
    PyObject *bytes;
    if (!PyArg_ParseTuple(item, "iSnn", &step->kind, &bytes, &step->least, &step->most))
        return 0;
    step->bytes = (const unsigned char *)PyBytes_AS_STRING(bytes);
    step->size = PyBytes_GET_SIZE(bytes);
    int has_table = (step->kind == SPAN || step->kind == NOT_AFTER) && step->size == 256;
    step->has_printable = has_table && memchr(step->bytes + 0x20, 0, 0x7f - 0x20) == NULL;
    return has_table ? step->most >= 0 : step->kind == LITERAL || step->kind == UNLESS || step->kind == MARK;
}

/* Whether `cut` can make a tuple of these items, with a program of so many marks. */
static int are_groups(PyObject *items, int named, Py_ssize_t marks)
{
    for (Py_ssize_t i = named; i < PyTuple_GET_SIZE(items); i += 1 + named) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!PyBytes_Check(item))
            return 0;
        for (Py_ssize_t j = 0; j < PyBytes_GET_SIZE(item); j++)
            if (2 * (unsigned char)PyBytes_AS_STRING(item)[j] + 1 >= marks)
                return 0;
    }
    return 1;
}

static PyObject *matcher_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(named))
{
    PyObject *program, *fields, *values;
    if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyTuple_Type, &program, &PyTuple_Type, &fields, &PyTuple_Type,
                          &values))
        return NULL;
    Matcher *self = (Matcher *)type->tp_alloc(type, PyTuple_GET_SIZE(program));
    if (self == NULL)
        return NULL;
    self->program = Py_NewRef(program), self->fields = Py_NewRef(fields), self->values = Py_NewRef(values);
    Py_ssize_t marks = 0, i = 0;
    for (; i < Py_SIZE(self) && set_step(&self->steps[i], PyTuple_GET_ITEM(program, i)); i++)
        marks += self->steps[i].kind == MARK;
    int fits = i == Py_SIZE(self) && marks <= MAX_MARKS;
    if (fits && are_groups(fields, 1, marks) && are_groups(values, 0, marks))
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_Occurred() != NULL ? NULL : (PyErr_SetString(PyExc_ValueError, "no such program"), NULL);
}

static void matcher_dealloc(Matcher *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->program), Py_XDECREF(self->fields), Py_XDECREF(self->values);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"match", (PyCFunction)matcher_match, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_new, matcher_new}, {Py_tp_dealloc, matcher_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"gateway.dataplane.http1.layout_matcher.Matcher", offsetof(Matcher, steps),
                           sizeof(Step), Py_TPFLAGS_DEFAULT, slots};

static int add_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_type}, {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "layout_matcher", .m_slots = module_slots};

PyMODINIT_FUNC PyInit_layout_matcher(void)
{
    return PyModuleDef_Init(&definition);
}
