cimport cython
from broker.injection.points cimport FaultInjection
from broker.replicas.partition.partition cimport Partition

cdef class CoordinatorShard:
    cdef public Partition partition
    cdef public long long leader_id, coordinator_epoch
    cdef public object refusal
    cdef public bint is_closed
    cdef public FaultInjection _injection
    cdef object __weakref__
    @cython.locals(partition=Partition)
    cpdef bint is_current(self) except? -1
    cpdef append(self, object records, object guard=*, bint verified=*, int required_acks=*)
