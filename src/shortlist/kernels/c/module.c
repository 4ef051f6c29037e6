/* The Python module: finds the buffers of the arguments, checks their types, and runs a kernel without the GIL. */

#define PY_SSIZE_T_CLEAN
#include <patchlevel.h>
#if PY_VERSION_HEX >= 0x030B0000 /* the stable ABI of Python 3.10 has no buffers */
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include "native.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#define MAX_ARGUMENTS 32

/* The library is built twice for x86: with AVX2, under a name of its own, and for all processors. */
#ifdef __AVX2__
#define LIBRARY "_native_avx2"
#define INIT PyInit__native_avx2
#else
#define LIBRARY "_native"
#define INIT PyInit__native
#endif

typedef struct {
    Argument arguments[MAX_ARGUMENTS];
    Py_buffer buffers[MAX_ARGUMENTS];
    void *copies[MAX_ARGUMENTS]; /* of arrays that are not contiguous */
    int n_arguments, n_buffers;
} Call;

/* Whether the buffer's items are of this type; numpy has two letters for 64-bit integers. */
static int is_type(const Py_buffer *buffer, char type) {
    char format = buffer->format ? buffer->format[0] : 'B';
    if (format == 'q') format = 'l';
    if (format == 'Q') format = 'L';
    return format == type && (!buffer->format || !buffer->format[1]);
}

/* Find the buffer of an array, as a copy if it has to be. 1: done; 0: there is none; -1: a Python error. */
static int add_array(Call *call, PyObject *object, Argument *argument, int writes) {
    Py_buffer *buffer = &call->buffers[call->n_buffers];
    void **copy = &call->copies[call->n_buffers];
    *copy = NULL;
    int flags = PyBUF_FORMAT | (writes ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_STRIDES);
    if (PyObject_GetBuffer(object, buffer, flags)) {
        PyErr_Clear(); /* not an array, read-only, or not contiguous */
        return 0;
    }
    call->n_buffers++;
    argument->data = buffer->buf;
    if (!PyBuffer_IsContiguous(buffer, 'C')) {
        *copy = argument->data = malloc(buffer->len + 1);
        if (!*copy) return PyErr_NoMemory(), -1;
        if (PyBuffer_ToContiguous(*copy, buffer, buffer->len, 'C')) return -1;
    }
    argument->n = buffer->ndim > 0 ? buffer->shape[0] : 0;
    argument->m = buffer->ndim > 1 ? buffer->shape[1] : 1;
    argument->p = buffer->ndim > 2 ? buffer->shape[2] : 1;
    return 1;
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
    int added = add_array(call, object, argument, writes);
    return added == 1 ? is_type(&call->buffers[call->n_buffers - 1], type) : added;
}

static void release(Call *call) {
    for (int i = 0; i < call->n_buffers; i++) {
        free(call->copies[i]);
        PyBuffer_Release(&call->buffers[i]);
    }
}

/* Run the kernel behind `self`: the first of this name that takes arguments of these types. */
static PyObject *call_kernel(PyObject *self, PyObject *given) {
    const Kernel *kernel = PyCapsule_GetPointer(self, "kernel");
    const char *name = kernel->name;
    int n_fitting = 0; /* arguments before the one that no kernel takes */
    for (; kernel->name && !strcmp(kernel->name, name); kernel++) {
        const char *types = kernel->types;
        Call call;
        call.n_arguments = call.n_buffers = 0;
        int added = add(&call, given, &types);
        if (added == 1 && !*types) {
            int64_t value;
            Py_BEGIN_ALLOW_THREADS;
            value = kernel->run(call.arguments);
            Py_END_ALLOW_THREADS;
            release(&call);
            if (value < 0) return PyErr_NoMemory();
            return kernel->has_result ? PyLong_FromLongLong(value) : Py_NewRef(Py_None);
        }
        if (call.n_arguments > n_fitting) n_fitting = call.n_arguments;
        release(&call);
        if (added < 0) return NULL;
    }
    return PyErr_Format(PyExc_TypeError, "kernel %s: argument %d has another type, or there are more or fewer", name,
                        n_fitting);
}

static PyMethodDef CALL = {"kernel", call_kernel, METH_VARARGS, NULL};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, LIBRARY, NULL, -1, NULL, NULL, NULL, NULL, NULL};

#ifdef __AVX2__
/* Whether the processor has AVX2 and FMA, and the operating system keeps their registers. */
static int has_avx2(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_OSXSAVE)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6) == 6;
}
#endif

/* EAX of this leaf of CPUID; 0 where the processor has none. */
static int64_t cpuid(const Argument *arguments) {
#ifdef __x86_64__
    unsigned a, b, c, d;
    if (__get_cpuid_count((unsigned)arguments[0].integer, 0, &a, &b, &c, &d)) return a;
#else
    (void)arguments;
#endif
    return 0;
}

static const Kernel PROCESSOR_KERNELS[] = {{"cpuid", "I", cpuid, 1}, {0}};

PyMODINIT_FUNC INIT(void) {
#ifdef __AVX2__
    if (!has_avx2()) {
        PyErr_SetString(PyExc_ImportError, "this processor has no AVX2");
        return NULL;
    }
#endif
    PyObject *module = PyModule_Create(&MODULE);
    const Kernel *tables[] = {TEXT_KERNELS,    SCORE_KERNELS,  EVIDENCE_KERNELS, CODE_KERNELS,  SEARCH_KERNELS,
                              READING_KERNELS, METRIC_KERNELS, ROW_KERNELS,      MERGE_KERNELS, TREE_KERNELS,
                              LABEL_KERNELS,   RERANKER_KERNELS, ENCODER_KERNELS, PROCESSOR_KERNELS};
    const char *before = "";
    for (size_t i = 0; module && i < sizeof tables / sizeof *tables; i++) {
        for (const Kernel *kernel = tables[i]; kernel->name; before = kernel->name, kernel++) {
            if (!strcmp(kernel->name, before)) continue; /* the same for other types */
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
