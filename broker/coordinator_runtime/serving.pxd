cimport cython
from broker.coordinator_runtime.shard cimport CoordinatorShard
from broker.replicas.manager cimport ReplicaManager

cdef class ServingShards:
    cdef public object _topic
    cdef public ReplicaManager _replicas
    cdef public dict by_partition
    cdef public bint ended
    @cython.locals(known=CoordinatorShard)
    cpdef find(self, object index)
