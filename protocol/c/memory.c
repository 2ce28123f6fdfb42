/* How much freed memory the allocator keeps. */

#include "core.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* glibc returns a freed piece above its threshold to the kernel at once. A response of 4 MiB then causes 1,000 page
 * faults, which cost three times as much as the work on its bytes. Other allocators are not changed. */
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
