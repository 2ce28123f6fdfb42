/* What the allocator does with large pieces that were freed. */

#include "core.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* glibc gives a freed piece above its threshold back to the kernel at once: a response of 4 MiB is then 1,000 page
 * faults, which cost three times what is done with its bytes. Elsewhere the allocator is left as it is. */
PyObject *core_keep_freed_memory(PyObject *module, PyObject *args)
{
    int piece_bytes, kept_bytes;
    if (!PyArg_ParseTuple(args, "ii", &piece_bytes, &kept_bytes)) return NULL;
#ifdef __GLIBC__
    return PyBool_FromLong(mallopt(M_MMAP_THRESHOLD, piece_bytes) && mallopt(M_TRIM_THRESHOLD, kept_bytes));
#else
    Py_RETURN_FALSE;
#endif
}
