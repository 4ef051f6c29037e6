/* The Python module: finds the buffers of the arguments, checks their types, and runs a kernel without the GIL. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "native.h"

#define MAX_ARGUMENTS 32

typedef struct {
    Argument arguments[MAX_ARGUMENTS];
    Py_buffer buffers[MAX_ARGUMENTS];
    int n_arguments, n_buffers;
} Call;

/* Whether the buffer's items are of this type; numpy has two letters for 64-bit integers. */
static int is_type(const Py_buffer *buffer, char type) {
    char format = buffer->format ? buffer->format[0] : 'B';
    if (format == 'q') format = 'l';
    if (format == 'Q') format = 'L';
    return format == type && (!buffer->format || !buffer->format[1]);
}

/* Add an argument, or all items of a tuple. 1: done; 0: of another type; -1: a Python error. */
static int add(Call *call, PyObject *object, const char **types) {
    if (PyTuple_Check(object)) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(object); i++) {
            int added = add(call, PyTuple_GetItem(object, i), types);
            if (added != 1) return added;
        }
        return 1;
    }
    if (!**types || call->n_arguments == MAX_ARGUMENTS) return 0;
    int writes = **types == '=';
    *types += writes;
    char type = *(*types)++;
    Argument *argument = &call->arguments[call->n_arguments++];
    if (type == 'I') {
        argument->integer = PyLong_AsLongLong(object);
        return argument->integer == -1 && PyErr_Occurred() ? -1 : 1;
    }
    if (type == 'D') {
        argument->real = PyFloat_AsDouble(object);
        return argument->real == -1 && PyErr_Occurred() ? -1 : 1;
    }
    Py_buffer *buffer = &call->buffers[call->n_buffers];
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writes ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, buffer, flags)) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
        PyErr_Clear(); /* not contiguous, or read-only */
        return 0;
    }
    call->n_buffers++;
    argument->data = buffer->buf;
    argument->n = buffer->ndim > 0 ? buffer->shape[0] : 0;
    argument->m = buffer->ndim > 1 ? buffer->shape[1] : 1;
    return is_type(buffer, type);
}

/* Run the kernel behind `self`; NotImplemented if it does not take arguments of these types. */
static PyObject *call_kernel(PyObject *self, PyObject *given) {
    const Kernel *kernel = PyCapsule_GetPointer(self, "kernel");
    const char *types = kernel->types;
    Call call;
    call.n_arguments = call.n_buffers = 0;
    int added = add(&call, given, &types);
    PyObject *result = NULL;
    if (added == 1 && !*types) {
        int64_t value;
        Py_BEGIN_ALLOW_THREADS;
        value = kernel->run(call.arguments);
        Py_END_ALLOW_THREADS;
        if (value < 0) {
            PyErr_NoMemory();
        } else {
            result = kernel->has_result ? PyLong_FromLongLong(value) : Py_NewRef(Py_None);
        }
    } else if (added >= 0) {
        result = Py_NewRef(Py_NotImplemented);
    }
    for (int i = 0; i < call.n_buffers; i++) PyBuffer_Release(&call.buffers[i]);
    return result;
}

static PyMethodDef CALL = {"kernel", call_kernel, METH_VARARGS, NULL};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
#if defined(__x86_64__) && defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        PyErr_SetString(PyExc_ImportError, "this processor has no AVX2");
        return NULL;
    }
#endif
    PyObject *module = PyModule_Create(&MODULE);
    const Kernel *tables[] = {TEXT_KERNELS, SCORE_KERNELS, EVIDENCE_KERNELS, SEARCH_KERNELS};
    for (int i = 0; module && i < 4; i++) {
        for (const Kernel *kernel = tables[i]; kernel->name; kernel++) {
            PyObject *capsule = PyCapsule_New((void *)kernel, "kernel", NULL);
            PyObject *function = capsule ? PyCFunction_NewEx(&CALL, capsule, NULL) : NULL;
            Py_XDECREF(capsule);
            if (!function || PyModule_AddObject(module, kernel->name, function)) {
                Py_XDECREF(function);
                Py_DECREF(module);
                return NULL;
            }
        }
    }
    return module;
}
