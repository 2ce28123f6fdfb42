cimport cython

cdef class AppendFile:
    cdef public str name
    cdef public long long _cuts, size
    cdef public int _fd
    cdef public tuple _synced
    cdef public object _failed
    cdef public bint used
    @cython.locals(fd=cython.int, position=cython.longlong)
    cpdef long long append(self, object chunks, long long length) except? -1
    cpdef int fileno(self) except? -1
